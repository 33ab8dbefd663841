"""Groups, rules, users, quotas, settings and log levels: shown, and changed as a person does it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.web.audit import close_audit_log, open_audit_log
from fencepost.soak.free_port import free_port
from tests.console.running import RunningConsole, change, csrf_in, get_json, hidden_fields, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.secured_broker import STANDARD_AUTHORIZER

pytestmark = pytest.mark.integration

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def http_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, http_address: str) -> Iterator[BrokerProcess]:
    settings = {
        "fencepost.http.listener": http_address,
        "num.partitions": "2",
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} required user_admin="admin-secret" user_alice="alice-secret";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "connection.failed.authentication.delay.ms": "0",
    }
    with BrokerProcess(tmp_path_factory.mktemp("secured") / "data", settings=settings) as process:
        admin = AdminClient(client_config(process, "admin"))
        for future in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("secret-plans", 1, 1)]).values():
            future.result(60)
        producer = Producer(client_config(process, "admin"))
        for number in range(10):
            producer.produce("orders", str(number), partition=number % 2)
        producer.flush(60)
        yield process
        assert "Traceback" not in process.output, process.output


def client_config(broker: BrokerProcess, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


@pytest.fixture(scope="module")
def console(secured: BrokerProcess, http_address: str) -> Iterator[RunningConsole]:
    with RunningConsole(options_for(secured, broker_http=f"http://{http_address}")) as running:
        yield running


@contextmanager
def log_in(
    console: RunningConsole, user: str, password: str, mechanism: str = "PLAIN", *, works: bool = True
) -> Iterator[httpx.Client]:
    with console.browser() as browser:
        page = browser.get("/")
        assert page.url.path == "/log-in"
        form = {"csrf": csrf_in(page.text), "user": user, "password": password, "mechanism": mechanism}
        answer = browser.post("/log-in", data=form)
        assert answer.status_code == (200 if works else 403), text_of(answer.text)
        yield browser


@pytest.fixture
def admin(console: RunningConsole) -> Iterator[httpx.Client]:
    with log_in(console, "admin", "admin-secret") as browser:
        yield browser


def test_connections_are_shown_to_those_who_may_describe_the_cluster(
    console: RunningConsole, admin: httpx.Client
) -> None:
    """The console's own token would show them to everybody."""
    shown = get_json(admin, "/connections")
    assert (shown["missing"], len(shown["listeners"])) == ("", 1)
    assert shown["opened_count"] > 0
    with log_in(console, "alice", "alice-secret") as alice:
        denied = get_json(alice, "/connections")
        assert denied["missing"] == "your user has no right to describe the cluster (DESCRIBE on CLUSTER)"
        assert (denied["listeners"], denied["opened_count"], denied["listing"]["rows"]) == ([], 0, [])
        rule = {"permission": "3", "operation": "8", "resource_type": "4", "pattern_type": "3", "host": "*"}
        change(admin, "add-acl", "User:alice", principal="User:alice", resource_name="kafka-cluster", **rule)
        assert len(get_json(alice, "/connections")["listeners"]) == 1
        change(admin, "remove-acl", "User:alice", principal="User:alice", resource_name="kafka-cluster", **rule)
        assert get_json(alice, "/connections")["listeners"] == []


def test_the_log_in_offers_what_the_cluster_has(console: RunningConsole) -> None:
    with console.browser() as browser:
        page = browser.get("/topics")
        assert re.findall(r"<option>([^<]+)", page.text) == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
        answer = browser.get("/topics", headers={"Accept": "application/json"})
        assert answer.status_code == 401


def test_a_log_in_works_at_the_second_try_after_the_console_has_forgotten_the_first_page(
    console: RunningConsole,
) -> None:
    """Its sessions end with it, and with time."""
    with console.browser() as browser:
        form = {"user": "admin", "password": "admin-secret", "mechanism": "PLAIN"}
        csrf = csrf_in(browser.get("/log-in").text)
        browser.cookies.clear()
        again = browser.post("/log-in", data={"csrf": csrf, **form})
        assert "from an earlier visit: try again" in text_of(again.text)
        assert browser.post("/log-in", data={"csrf": csrf_in(again.text), **form}).status_code == 200
        assert browser.get("/topics").url.path == "/topics"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "NONE"])
def test_a_wrong_password_is_refused(console: RunningConsole, mechanism: str) -> None:
    with log_in(console, "admin", "wrong", mechanism, works=False) as browser:
        assert browser.get("/topics").url.path == "/log-in"


def test_a_user_sees_what_its_rights_say_and_no_more(console: RunningConsole, admin: httpx.Client) -> None:
    rule = {
        "resource_type": "2",
        "resource_name": "orders",
        "pattern_type": "3",
        "principal": "User:alice",
        "operation": "3",
        "permission": "3",
    }
    with log_in(console, "alice", "alice-secret") as alice:
        assert "orders" not in text_of(alice.get("/topics").text)
        assert alice.get("/topics/orders").status_code == 403
        assert alice.get("/acls").status_code == 403
        assert alice.get("/users").status_code == 403
        said = text_of(change(admin, "add-acl", "User:alice", **rule).text)
        assert "In force: User:alice may read on topic orders." in said
        topics = text_of(alice.get("/topics").text)
        assert "orders" in topics
        assert "secret-plans" not in topics
        assert alice.get("/topics/orders/messages").status_code == 200
        assert alice.get("/topics/secret-plans/messages").status_code in (403, 404)
        # What she may not do the cluster refuses, whatever the page offers.
        assert change(alice, "delete-topic", "orders", name="orders").status_code == 403
        change(admin, "remove-acl", "User:alice", **rule, host="*")
        assert alice.get("/topics/orders/messages").status_code == 403
        assert alice.get("/").status_code == 200
        page = alice.post("/log-out", data={"csrf": csrf_in(alice.get("/topics").text)})
        assert page.url.path == "/log-in"


def test_a_user_is_added_logs_in_by_scram_and_is_removed(console: RunningConsole, admin: httpx.Client) -> None:
    form = {"csrf": csrf_in(admin.get("/users").text), "user": "zoë", "mechanism": "both"}
    shown = admin.post("/change/set-password", data=form)
    assert 'type="password"' in shown.text
    form = hidden_fields(shown.text) | {"typed_name": "zoë", "reason": "a new colleague"}
    wrong = admin.post("/change/set-password", data=form | {"password": "a", "password_again": "b"})
    assert wrong.status_code == 422
    done = admin.post("/change/set-password", data=form | {"password": "pass", "password_again": "pass"})
    assert "The password of zoë was set." in text_of(done.text), text_of(done.text)[300:900]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with log_in(console, "zoë", "pass", mechanism) as browser:
            assert browser.get("/").url.path == "/"
    change(admin, "remove-user", "zoë", user="zoë")
    with log_in(console, "zoë", "pass", "SCRAM-SHA-256", works=False) as browser:
        assert browser.get("/").url.path == "/log-in"


def test_a_password_is_never_on_a_page_nor_in_the_audit_log(admin: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    open_audit_log(str(path))
    form = {"csrf": csrf_in(admin.get("/users").text), "user": "bob", "mechanism": "SCRAM-SHA-256"}
    secret = {"password": "very-secret", "password_again": "very-secret"}
    shown = admin.post("/change/set-password", data=form | secret)
    assert "very-secret" not in shown.text
    confirming = hidden_fields(shown.text) | secret | {"typed_name": "bob", "reason": "a new colleague"}
    done = admin.post("/change/set-password", data=confirming)
    close_audit_log()
    assert "very-secret" not in done.text
    assert "very-secret" not in path.read_text()
    entry = json.loads(path.read_text().splitlines()[-1])
    assert (entry["user"], entry["change"], entry["subject"], entry["outcome"]) == (
        "admin",
        "set-password",
        "bob",
        "done",
    )
    change(admin, "remove-user", "bob", user="bob")


def test_quotas_are_set_shown_and_removed(admin: httpx.Client) -> None:
    change(admin, "set-quota", "user alice", user="alice", key="producer_byte_rate", value="1048576")
    assert "1,048,576" in text_of(admin.get("/quotas").text)
    change(admin, "set-quota", "user alice", user="alice", key="producer_byte_rate", remove="yes")
    assert get_json(admin, "/quotas")["listing"]["total"] == 0
    form = {"csrf": csrf_in(admin.get("/quotas").text), "key": "producer_byte_rate", "value": "1"}
    assert admin.post("/change/set-quota", data=form).status_code == 422


def test_settings_and_log_levels_are_changed(admin: httpx.Client) -> None:
    broker = str(get_json(admin, "/settings")["broker"])

    def value_of(name: str) -> str:
        found = {one["name"]: one["value"] for one in get_json(admin, "/settings")["settings"]}
        return str(found[name])

    before = value_of("log.retention.ms")
    change(
        admin, "alter-broker-setting", "log.retention.ms", broker=broker, setting="log.retention.ms", value="7200000"
    )
    assert value_of("log.retention.ms") == "7200000"
    change(admin, "alter-broker-setting", "log.retention.ms", broker=broker, setting="log.retention.ms", reset="yes")
    assert value_of("log.retention.ms") == before
    change(admin, "set-log-level", "broker.log", broker=broker, setting="broker.log", value="DEBUG")
    levels = {one["name"]: one["value"] for one in get_json(admin, "/log-levels")["loggers"]}
    assert levels["broker.log"] == "DEBUG"
    change(admin, "set-log-level", "broker.log", broker=broker, setting="broker.log", value="INFO")
    secrets = [one for one in get_json(admin, "/settings")["settings"] if one["name"] == "sasl.jaas.config"]
    assert secrets[0]["value"] is None


def test_offsets_of_a_group_are_moved_after_a_dry_run_and_the_group_deleted(
    secured: BrokerProcess, admin: httpx.Client
) -> None:
    consumer = Consumer(client_config(secured, "admin") | {"group.id": "readers", "enable.auto.commit": "false"})
    consumer.commit(offsets=[TopicPartition("orders", index, 5) for index in (0, 1)], asynchronous=False)
    consumer.close()
    form = {"csrf": csrf_in(admin.get("/topics").text), "id": "readers", "target": "shift", "value": "-2"}
    shown = admin.post("/change/reset-offsets", data=form).text
    assert "orders-0 5 3 -2" in text_of(shown)
    assert [one["committed"] for one in get_json(admin, "/group?id=readers")["state"]["offsets"]] == [5, 5]
    confirming = hidden_fields(shown) | {"typed_name": "readers", "reason": "it has to read them again"}
    admin.post("/change/reset-offsets", data=confirming)
    assert [one["committed"] for one in get_json(admin, "/group?id=readers")["state"]["offsets"]] == [3, 3]
    row = next(one for one in get_json(admin, "/groups")["listing"]["rows"] if one["group_id"] == "readers")
    assert row["lag"] == {"end": 4, "deliverable": 4, "blocked": 0, "unknown": None}
    change(admin, "delete-group", "readers", id="readers")
    assert admin.get("/group?id=readers").status_code == 404


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_are_shown_and_connections_list_them(
    secured: BrokerProcess, admin: httpx.Client, protocol: str
) -> None:
    group_id = f"members-{protocol}"
    config = {"group.id": group_id, "group.protocol": protocol, "client.id": f"client-{protocol}"}
    consumer = Consumer(client_config(secured, "admin") | config)
    consumer.subscribe(["orders"])
    deadline_s = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline_s, "the consumer got no partitions"
    try:
        state = get_json(admin, f"/group?id={group_id}")["state"]
        assert state["group"]["kind"] == protocol
        (member,) = state["members"]
        assert member["client_id"] == f"client-{protocol}"
        assert sorted(member["assigned"]) == ["orders-0", "orders-1"]
        assert f"client-{protocol} 127.0.0.1" in text_of(admin.get("/connections").text)
        assert change(admin, "delete-group", group_id, id=group_id).status_code == 502
    finally:
        consumer.close()


def test_a_session_of_one_user_does_not_serve_another(console: RunningConsole, admin: httpx.Client) -> None:
    stolen = csrf_in(admin.get("/topics").text)
    with log_in(console, "alice", "alice-secret") as alice:
        form = {"csrf": stolen, "name": "orders", "typed_name": "orders"}
        assert alice.post("/change/delete-topic", data=form).status_code == 422
    with console.browser() as stranger:
        stranger.cookies.set("fencepost_console", "made-up")
        assert stranger.get("/topics").url.path == "/log-in"
