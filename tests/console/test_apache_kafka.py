"""The console with Apache Kafka itself, where `scripts/apache_kafka.py fetch` has put it. CI fetches it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.options import ConsoleOptions
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.console.running import RunningConsole, change, eventually, get_json, hidden_fields, look, text_of
from tests.console.world import STUCK_ID, fill, leave_open
from tests.support.committed_records import committed_records
from tests.support.conditions import until
from tests.support.missing_tools import require_apache_kafka

NOT_THERE = {
    "/connections": "only the HTTP port of a Fencepost broker says it",
    "/transaction?id=shop-0": "only the HTTP port of a Fencepost broker says it",
    "/in-doubt": "No check-back has written to this cluster",
    "/in-doubt/transaction?id=shop-0": "no check-back runs here",
    "/acls": "This cluster has no authorizer",
}
"""By page, its sentence on the missing part."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_apache_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), free_port()) as kafka:
        fill(kafka.bootstrap_servers)
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def browser(bootstrap: str) -> Iterator[httpx.Client]:
    host, port = bootstrap.split(":")
    options = ConsoleOptions(bootstrap=((host, int(port)),))
    with RunningConsole(options) as running, running.browser() as client:
        yield client


def test_every_page_shows_apache_kafka(browser: httpx.Client) -> None:
    addresses = set(re.findall(r'<a href="(/[^"]*)"', browser.get("/").text)) - {"/theme"}
    addresses |= {
        "/topics/orders",
        "/topics/orders/messages",
        "/topics/orders/messages?order=oldest&field=customer&operand=c9",
        "/topics/orders/0/records/0",
        "/topics/orders/0/time-travel",
        "/topics/orders/settings",
        "/topics/orders/tail",
        "/topics/__transaction_state",
        "/topics/__consumer_offsets/messages",
        "/log-levels",
        "/connections",
        "/quotas",
        "/group?id=billing",
        "/in-doubt/transaction?id=shop-0",
        "/users",
    }
    for address in sorted(addresses):
        assert browser.get(address).status_code == 200, address


def test_pages_say_in_a_sentence_what_apache_kafka_has_not(browser: httpx.Client) -> None:
    """docs/console.md has the same as a table."""
    for address, said in NOT_THERE.items():
        assert said in text_of(browser.get(address).text), address


def test_every_change_works_with_apache_kafka(bootstrap: str, browser: httpx.Client) -> None:
    """Each is shown, confirmed and carried out; with no authorizer there are no rules to change."""
    node = str(get_json(browser, "/settings")["broker"])
    logger = get_json(browser, "/log-levels")["loggers"][0]["name"]
    new = {"topic": "made", "name": "made"}
    steps: list[tuple[str, str, dict[str, str], str]] = [
        ("create-topic", "made", {"name": "made", "configs": "retention.ms=90000000"}, "Topic made was created."),
        ("add-partitions", "made", {"name": "made", "count": "3"}, "Topic made has 3 partitions now."),
        ("alter-topic-setting", "made", {**new, "setting": "retention.ms", "value": "80000000"}, "set to 80000000"),
        ("produce-record", "made", {**new, "partition": "1", "key": "k", "value": "v"}, "is at offset 0 of made-1"),
        ("produce-record", "made", {**new, "partition": "1", "null_value": "yes"}, "is at offset 1 of made-1"),
        ("delete-records", "made-1", {**new, "partition": "1", "offset": "1"}, "made-1 begins at offset 1 now."),
        ("reset-offsets", "billing", {"id": "billing", "target": "earliest"}, "of billing moved."),
        ("copy-offsets", "copied", {"id": "billing", "to": "copied"}, "were copied to copied."),
        ("delete-group", "copied", {"id": "copied"}, "Group copied was deleted."),
        ("set-quota", "user zoe", {"user": "zoe", "key": "producer_byte_rate", "value": "9999"}, "set to 9,999"),
        ("set-quota", "user zoe", {"user": "zoe", "key": "producer_byte_rate", "remove": "yes"}, "was removed."),
        (
            "alter-broker-setting",
            "log.cleaner.threads",
            {"broker": node, "setting": "log.cleaner.threads", "value": "2"},
            "set to 2",
        ),
        ("set-log-level", logger, {"broker": node, "setting": logger, "value": "WARN"}, f"Logger {logger} of broker"),
        ("delete-topic", "made", {"name": "made"}, "Topic made was deleted."),
    ]
    for kind, typed, fields, said in steps:
        answer = change(browser, kind, typed, **fields)
        assert said in text_of(answer.text), (kind, text_of(answer.text)[:600])
    form = look(browser, "set-password", user="mia", mechanism="both")
    secret = {"password": "pass", "password_again": "pass", "typed_name": "mia", "reason": "a colleague"}
    assert "was set" in text_of(browser.post("/change/set-password", data=form | secret).text)
    assert "was removed" in text_of(change(browser, "remove-user", "mia", user="mia").text)
    fields = {"resource_type": "2", "resource_name": "orders", "principal": "User:mia", "operation": "3"}
    form = {"csrf": form["csrf"], **fields, "permission": "3"}
    refused = browser.post("/change/add-acl", data=form)
    assert (refused.status_code, "this cluster has no authorizer" in text_of(refused.text).lower()) == (422, True)


def test_a_world_that_has_changed_is_refused_with_apache_kafka(bootstrap: str, browser: httpx.Client) -> None:
    change(browser, "create-topic", "again", name="again", partitions="1")
    form = look(browser, "delete-topic", name="again") | {"typed_name": "again", "reason": "it is old"}
    change(browser, "delete-topic", "again", name="again")
    until(lambda: change_is_done(browser), timeout_s=60)
    answer = browser.post("/change/delete-topic", data=form)
    assert answer.status_code == 409
    assert "The id of topic again: " in text_of(answer.text)


def change_is_done(browser: httpx.Client) -> bool:
    form = {"csrf": look(browser, "create-topic", name="any")["csrf"], "name": "again", "partitions": "1"}
    shown = browser.post("/change/create-topic", data=form)
    confirming = {"typed_name": "again", "reason": "it is needed"}
    return (
        shown.status_code == 200
        and browser.post("/change/create-topic", data=hidden_fields(shown.text) | confirming).status_code == 200
    )


def test_records_are_copied_in_transactions_and_without(bootstrap: str, browser: httpx.Client) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("copied", 3, 1)])["copied"].result(60)
    # Other tests of this file write there, too.
    count = sum(len(committed_records(bootstrap, "orders", partition)) for partition in range(3))
    assert count >= 84
    for fields in ({"transactions": "yes"}, {}):
        change(browser, "copy-records", "copied", topic="orders", target="copied", by="same", keep_time="yes", **fields)
        until(lambda: not get_json(browser, "/copies")["jobs"][0]["is_running"], timeout_s=60)
        job = get_json(browser, "/copies")["jobs"][0]
        assert (job["outcome"], job["progress"]["written_records"]) == ("done", count)
    lines = browser.get("/topics/copied/download?as=records").text.splitlines()
    assert len(lines) == 2 * count + 1
    assert json.loads(lines[-1])["end"]["complete"]
    assert len(get_json(browser, "/topics/copied/tail")["rows"]) == 50


def test_a_stuck_partition_is_explained_and_freed(bootstrap: str, browser: httpx.Client) -> None:
    leave_open(bootstrap, "orders")
    page = eventually(browser, "/stuck/orders/0", "10 offsets wait behind it")
    assert f"The transaction of {STUCK_ID} is still open" in page
    rows = get_json(browser, "/topics/orders/messages?partition=0")["rows"]
    assert [one["row"]["mark"] for one in rows[9::-1]] == ["open"] * 5 + ["committed"] * 4 + ["marker"]
    change(browser, "abort-transaction", STUCK_ID, id=STUCK_ID)
    eventually(browser, "/stuck/orders/0", "orders-0 is not stuck")
    rows = get_json(browser, "/topics/orders/messages?partition=0")["rows"]
    assert "open" not in {one["row"]["mark"] for one in rows}
    steps = get_json(browser, "/topics/orders/0/time-travel")["history"]["steps"]
    assert steps[-1]["end_offset"] == steps[-1]["last_stable_offset"]
    life = get_json(browser, f"/transaction?id={STUCK_ID}")["history"]["moments"]
    assert [one["state"] for one in life][:2] == ["Empty", "Ongoing"]
