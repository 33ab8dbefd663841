"""The console over HTTP, as a browser without JavaScript meets it, against a broker process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.options import ConsoleOptions
from fencepost.console.web.audit import close_audit_log, open_audit_log
from tests.console.running import (
    RunningConsole,
    change,
    csrf_in,
    eventually,
    get_json,
    hidden_fields,
    options_for,
    text_of,
)
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

pytestmark = pytest.mark.integration

HOSTILE = "<script>alert('1')</script>\u202egnp.\n\"&"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings={"num.partitions": "1"}) as process:
        yield process
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with RunningConsole(options_for(broker)) as running:
        yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as client:
        yield client


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[-60:].strip("-")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(60)


def test_all_pages_answer_on_an_empty_broker(browser: httpx.Client) -> None:
    addresses = re.findall(r'<a href="(/[a-z-]*)"', browser.get("/").text)
    assert len(addresses) >= 5
    for address in addresses:
        page = browser.get(address)
        assert page.status_code == 200, address
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert not re.search(r"<script(?![^>]*src=)|style=\"|\son\w+=\"|(?:src|href)=\"(?:https?:)?//", page.text), (
            address
        )


def test_a_record_is_marked_by_how_its_transaction_stands(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    for name, outcome in (("committing", "commit"), ("aborting", "abort"), ("waiting", "")):
        producer = transactional(broker, f"{topic}-{name}")
        write(producer, topic, name)
        if outcome == "commit":
            producer.commit_transaction(60)
            eventually(browser, f"/topics/{topic}/messages?from=0", "commit marker")
        elif outcome:
            producer.abort_transaction(60)
            eventually(browser, f"/topics/{topic}/messages?from=0", "abort marker")
        else:
            open_one = producer
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, "plain")
    plain.flush(60)
    try:
        rows = get_json(browser, f"/topics/{topic}/messages?from=0")["rows"]
        assert isinstance(rows, list)
        found = [(one["row"]["mark"], one["row"]["committed"], one["value"]) for one in rows]
        assert found == [
            ("committed", None, "committing"),
            ("marker", True, None),
            ("aborted", None, "aborting"),
            ("marker", False, None),
            ("open", None, "waiting"),
            ("plain", None, "plain"),
        ]
        page = text_of(browser.get(f"/topics/{topic}/messages?from=0&stands=committed").text)
        assert "committing" in page
        assert "aborting" not in page.replace("-aborting", "")
        assert "waiting" not in page.replace("-waiting", "")
    finally:
        open_one.abort_transaction(60)


def test_a_stuck_partition_is_explained_aborted_by_the_button_and_its_reader_goes_on(
    broker: BrokerProcess, browser: httpx.Client, topic: str, tmp_path: Path
) -> None:
    stuck = transactional(broker, f"{topic}-stuck")
    write(stuck, topic, "held")
    other = transactional(broker, f"{topic}-other")
    write(other, topic, "behind")
    other.commit_transaction(60)
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe([topic])
    assert reader.poll(2) is None
    eventually(browser, f"/stuck/{topic}/0", f"{topic}-0: read_committed readers stop at offset 0; 3 offsets wait")
    page = browser.get(f"/stuck/{topic}/0")
    assert f"{topic}-stuck" in text_of(browser.get("/stuck").text)

    form = {"csrf": csrf_in(page.text), "id": f"{topic}-stuck"}
    shown = browser.post("/change/abort-transaction", data=form)
    assert shown.status_code == 200
    assert "is fenced" in text_of(shown.text)
    form = hidden_fields(shown.text)
    wrong = browser.post("/change/abort-transaction", data=form | {"typed_name": "something"})
    assert wrong.status_code == 422
    without = browser.post("/change/abort-transaction", data=form | {"typed_name": f"{topic}-stuck", "reason": " "})
    assert without.status_code == 422
    assert "The reason is missing. Nothing was changed." in text_of(without.text)
    assert get_json(browser, f"/stuck/{topic}/0")["explanation"]["cause"] == "ongoing"
    open_audit_log(str(tmp_path / "audit.log"))
    given = {"typed_name": f"{topic}-stuck", "reason": "<it is gone>"}
    done = browser.post("/change/abort-transaction", data=form | given)
    close_audit_log()
    assert done.status_code == 200
    begun, entry = map(json.loads, (tmp_path / "audit.log").read_text().splitlines())
    assert (entry["change"], entry["subject"], entry["user"]) == ("abort-transaction", f"{topic}-stuck", "ANONYMOUS")
    assert (begun["outcome"], entry["outcome"], entry["reason"]) == ("begun", "done", "<it is gone>")

    message = reader.poll(60)
    assert message is not None
    assert message.value() == b"behind"
    reader.close()
    eventually(browser, f"/stuck/{topic}/0", f"{topic}-0 is not stuck")
    history = get_json(browser, f"/transaction?id={topic}-stuck")["history"]["moments"]
    states = [moment["state"] for moment in history]
    assert states[0] == "Empty"
    assert states.index("Ongoing") < states.index("PrepareAbort")


def test_the_stair_of_time_travel_is_what_the_broker_said_at_each_step(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    noted: list[tuple[int, int]] = []

    def note(end: int) -> None:
        """Wait for the end, as markers are written after the client knows of the outcome, and note both offsets.

        A page asks for them one after the other; only those that are read when the end is there belong together.
        """

        def offsets() -> tuple[int, int]:
            state = get_json(browser, f"/topics/{topic}")["topic"]["partitions"][0]
            return state["high_watermark"], state["last_stable_offset"]

        until(lambda: offsets()[0] == end, timeout_s=60)
        noted.append(offsets())

    first, second = transactional(broker, f"{topic}-1"), transactional(broker, f"{topic}-2")
    note(0)
    write(first, topic, "a", "b")
    note(2)
    write(second, topic, "c")
    note(3)
    first.abort_transaction(60)
    note(4)
    write(first, topic, "d")
    note(5)
    second.commit_transaction(60)
    note(6)
    first.commit_transaction(60)
    note(7)
    steps = get_json(browser, f"/topics/{topic}/0/time-travel")["history"]["steps"]
    stair = [(step["end_offset"], step["last_stable_offset"]) for step in steps]
    assert [step for step in stair if step in noted] == noted
    shown = text_of(browser.get(f"/topics/{topic}/0/time-travel?at=4").text)
    assert "When the log ended at 4" in shown
    assert "read_committed readers saw up to 2" in shown


def test_names_of_any_text_are_shown_and_do_nothing(broker: BrokerProcess, browser: httpx.Client, topic: str) -> None:
    producer = transactional(broker, HOSTILE)
    write(producer, topic, HOSTILE)
    try:
        for address in (
            "/transactions",
            f"/topics/{topic}",
            f"/topics/{topic}/messages",
            f"/stuck/{topic}/0",
            "/search?q=script",
        ):
            page = browser.get(address)
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert "\u202e" not in re.sub(
                r'(?s)(?:value|href)="[^"]*"|<(?:pre|span class="text")[^>]*>.*?</', "", page.text
            )
        page = browser.get("/transaction", params={"id": HOSTILE})
        assert "alert('1')" in text_of(page.text)
        # What cannot be typed is confirmed by a word.
        done = change(browser, "abort-transaction", "confirm", id=HOSTILE)
        assert "was fenced" in text_of(done.text)
    finally:
        with pytest.raises(Exception, match=r"(?i)fenced"):
            producer.commit_transaction(60)


@pytest.mark.parametrize("csrf", ["", "x" * 43])
def test_a_form_of_another_site_changes_nothing(browser: httpx.Client, topic: str, csrf: str) -> None:
    browser.get("/")
    answer = browser.post("/change/delete-topic", data={"csrf": csrf, "name": topic, "typed_name": topic})
    assert answer.status_code == 422
    assert browser.get(f"/topics/{topic}").status_code == 200


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(browser: httpx.Client) -> None:
    cookie = browser.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_a_form_of_another_site_ends_no_session_and_begins_none(console: RunningConsole, topic: str) -> None:
    """A browser sends no cookie with such a form, but would take one from its answer."""
    with console.browser() as stranger:
        for address in ("/log-out", "/change/delete-topic", "/log-in"):
            answer = stranger.post(address, data={"name": topic}, follow_redirects=False)
            assert "set-cookie" not in answer.headers, address


def test_a_log_out_of_another_page_does_not_count(browser: httpx.Client) -> None:
    browser.get("/")
    before = dict(browser.cookies)
    for csrf in ({}, {"csrf": "x" * 43}):
        assert not [one for one in browser.post("/log-out", data=csrf).headers.get_list("set-cookie") if "=;" in one]
    assert dict(browser.cookies) == before


def shown_raw(page: str) -> set[str]:
    """Characters that hide something, but for the values of fields, which the browser sends back as they are."""
    return set("\0\u202e\u2066") & set(re.sub(r' value="[^"]*"', "", page))


LONG = "9" * 5_000
HIDDEN = "a%00b%E2%80%AEc%FFd"


@pytest.mark.parametrize(
    "address",
    [
        f"/static/{'x' * 5_000}",
        "/static/%00",
        "/static/..%2f..%2fapp.py",
        *(
            f"/{page}?page={LONG}&sort={HIDDEN}&q={HIDDEN}"
            for page in ("topics", "groups", "producers", "transactions")
        ),
        *(f"/group?id={text}" for text in (LONG, HIDDEN, "")),
        *(f"/transaction?id={text}" for text in (LONG, HIDDEN, "")),
        *(f"/topics/{text}" for text in (LONG, HIDDEN)),
        *(
            f"/topics/{{topic}}/messages?partition={text}&from={text}&time={text}"
            for text in (LONG, HIDDEN, "-1", "\u00b2")
        ),
        *(f"/topics/{{topic}}/0/time-travel?from={text}&to={text}&at={text}&time={text}" for text in (LONG, HIDDEN)),
        f"/stuck/{{topic}}/{LONG}",
        f"/producers?topic={HIDDEN}",
        f"/search?q={HIDDEN}",
        f"/connections?page={LONG}",
        f"/theme?to={HIDDEN}&back={LONG}",
        f"/settings?broker={LONG}&q={HIDDEN}",
        f"/log-levels?broker={LONG}&q={HIDDEN}",
        f"/{HIDDEN}",
    ],
)
def test_no_address_makes_a_page_fail(browser: httpx.Client, topic: str, address: str) -> None:
    answer = browser.get(address.replace("{topic}", topic))
    assert answer.status_code != 500, answer.text
    assert not shown_raw(answer.text)


def test_characters_that_hide_are_shown_as_numbers_and_names_stay_as_they_are(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "paid \u202e100\0 \u3000\u65e5\nnext", "key\u202e", headers={"h\u202e": "\u2066v"})
    assert producer.flush(60) == 0
    page = browser.get(f"/topics/{topic}/messages?partition=0").text
    assert "paid \\u202e100\\u0000 \u3000\u65e5\nnext" in page
    assert not shown_raw(page)
    group = f"{topic}\u202e"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    page = browser.get("/group", params={"id": group}).text
    assert f'value="{group}"' in page
    assert f"{topic}\\u202e" in text_of(page)


def test_another_name_that_points_here_is_refused(browser: httpx.Client) -> None:
    assert browser.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_what_does_not_exist_is_said_so(browser: httpx.Client) -> None:
    for address in ("/topics/no-such", "/stuck/no-such/0", "/transaction?id=no-such", "/no-such", "/static/no-such.js"):
        assert browser.get(address).status_code == 404, address
    for address in ("/transaction", "/in-doubt/transaction?id="):
        answer = browser.get(address)
        assert answer.status_code == 404, address
        assert "address names no transactional id" in text_of(answer.text)
    assert browser.get("/topics/a/0/../../../etc").status_code == 404


def test_a_read_only_console_offers_and_makes_no_changes(broker: BrokerProcess, topic: str) -> None:
    with RunningConsole(options_for(broker, read_only=True)) as running, running.browser() as browser:
        page = browser.get(f"/topics/{topic}").text
        assert "/change/" not in page
        session = running.app.state.console.sessions.find(browser.cookies["fencepost_console"])
        form = {"csrf": session.csrf, "name": topic, "typed_name": topic}
        assert browser.post("/change/delete-topic", data=form).status_code == 422
        assert browser.get(f"/topics/{topic}").status_code == 200


def test_without_a_broker_the_page_says_so() -> None:
    with RunningConsole(ConsoleOptions(bootstrap=(("127.0.0.1", 1),))) as running, running.browser() as browser:
        answer = browser.get("/")
        assert answer.status_code == 502
        assert "no broker answers at 127.0.0.1:1" in text_of(answer.text).lower()


def test_a_topic_is_created_grown_changed_written_trimmed_and_deleted(browser: httpx.Client) -> None:
    name = "made-by-the-console"
    said = text_of(
        change(browser, "create-topic", name, name=name, partitions="1", configs="retention.ms=1000000").text
    )
    assert f"Topic {name} was created." in said
    change(browser, "add-partitions", name, name=name, count="2")
    change(browser, "alter-topic-setting", name, topic=name, setting="retention.ms", value="2000000")
    settings = {one["name"]: one for one in get_json(browser, f"/topics/{name}/settings")["settings"]}
    assert settings["retention.ms"]["value"] == "2000000"
    change(browser, "alter-topic-setting", name, topic=name, setting="retention.ms", value="", reset="yes")
    said = text_of(change(browser, "produce-record", name, topic=name, partition="1", key="k", value='{"a": 1}').text)
    assert f"The record is at offset 0 of {name}-1." in said
    assert '{"a": 1}' in text_of(browser.get(f"/topics/{name}/messages?partition=1").text)
    change(browser, "delete-records", f"{name}-1", name=name, partition="1", offset="1")
    state = get_json(browser, f"/topics/{name}")["topic"]["partitions"][1]
    assert (state["start"], state["high_watermark"]) == (1, 1)
    said = text_of(change(browser, "delete-topic", name, name=name).text)
    assert f"Topic {name} was deleted." in said
    assert browser.get(f"/topics/{name}").status_code == 404


def test_a_group_that_has_read_all_could_read_nothing_more_on_all_pages(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    producer = transactional(broker, topic)
    for end in (producer.commit_transaction, producer.abort_transaction):
        write(producer, topic, "1", "2", "3")
        end(60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})

    def lags(committed: int) -> list[tuple[int, int, int]]:
        """On the pages of the group, of all groups and of the topic."""
        consumer.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
        alone = get_json(browser, f"/group?id={topic}")["state"]["lag"]
        listed = get_json(browser, f"/groups?q={topic}")["listing"]["rows"][0]["lag"]
        reader = get_json(browser, f"/topics/{topic}")["readers"][0]["lag"]
        return [(one["end"], one["deliverable"], one["blocked"]) for one in (alone, listed, reader)]

    until(lambda: lags(1) == [(7, 2, 0)] * 3, timeout_s=60)
    assert lags(3) == [(5, 0, 0)] * 3
    write(producer, topic, "open")
    assert lags(3) == [(6, 0, 1)] * 3
    producer.abort_transaction(60)
    consumer.close()
