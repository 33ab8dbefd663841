"""The JSON API after real clients did known things: why a last stable offset is stuck, who is behind it, a way out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from fencepost.broker.transaction.completion import Completion
from tests.broker.metrics.test_broker_families import TIMEOUT_S, Metered, send, until
from tests.support.admin_client import create
from tests.support.http_node import OPERATOR, VIEWER, http_node, token_file


class Asked(Metered):
    """A broker whose JSON API is asked."""

    def get(self, path: str, status: int = 200) -> Any:
        response = httpx.get(f"http://127.0.0.1:{self.http_port}{path}", timeout=TIMEOUT_S)
        assert response.status_code == status, response.text
        return response.json()

    def post(self, path: str, content: Any, status: int = 200, token: str = OPERATOR) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{self.http_port}{path}"
        response = httpx.post(url, json=content, headers=headers, timeout=TIMEOUT_S)
        assert response.status_code == status, response.text
        return response.json()

    def open(self, name: str, topic: str, count: int = 1, **settings: Any) -> Producer:
        """A producer with an open transaction of some records."""
        producer = self.producer(**{"transactional.id": name, "client.id": f"client of {name}", **settings})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        send(producer, topic, count)
        return producer


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    found = Asked(
        tmp_path / "data",
        **{
            "transaction.state.log.num.partitions": "2",
            "fencepost.http.token.file": str(token_file(tmp_path)),
        },
    )
    found.start()
    yield found
    found.broker.close()


def test_connections_say_who_has_opened_them(asked: Asked) -> None:
    before_ms = time.time() * 1000
    create(asked.admin, "orders")
    till = asked.producer(**{"client.id": "till 7"})  # kept: it disconnects when it is freed
    send(till, "orders", 1)
    found = asked.get("/v1/connections")
    assert found["connections_count"] == len(found["connections"])
    one = [each for each in found["connections"] if each["client_id"] == "till 7"][-1]
    assert (one["listener"], one["address"], one["principal"]) == ("PLAINTEXT", "127.0.0.1", "User:ANONYMOUS")
    assert one["software_name"] == "confluent-kafka-python"
    assert before_ms - 1000 <= one["opened_ms"] <= one["last_activity_ms"] <= time.time() * 1000 + 1000
    assert (one["in_flight"], one["client_metrics_count"]) == (0, 0)
    assert len(asked.get("/v1/connections?limit=1")["connections"]) == 1


def test_a_stuck_partition_is_explained_from_the_offset_to_the_client(asked: Asked) -> None:
    create(asked.admin, "orders", 2)
    assert asked.get("/v1/stuck")["stuck"] == []
    send(asked.producer(), "orders", 6)
    stuck = asked.open("stuck/1", "orders", 5)
    asked.commit("billing", "orders", 6)
    (one,) = asked.get("/v1/stuck")["stuck"]
    assert (one["topic"], one["partition"], one["cause"]) == ("orders", 0, "ongoing")
    assert (one["last_stable_offset"], one["high_watermark"], one["last_stable_offset_lag"]) == (6, 11, 5)
    assert one["explanation"].startswith("orders-0: read_committed readers stop at offset 6; 5 offsets wait behind it")
    assert "The transaction of stuck/1 is still open" in one["explanation"]
    assert one["advice"][0].startswith("Wait: it is aborted by itself in")
    assert one["waiting_groups"] == [{"group_id": "billing", "committed": 6, "deliverable": 0, "blocked": 5}]
    held_by = one["held_by"]
    assert held_by["first_offset"] == 6
    assert 0 <= held_by["age_ms"] < 60_000
    assert held_by["transaction"]["transactional_id"] == "stuck/1"
    assert held_by["transaction"]["state"] == "Ongoing"
    client = held_by["client"]
    assert (client["client_id"], client["address"]) == ("client of stuck/1", "127.0.0.1")
    assert (client["software_name"], client["principal"]) == ("confluent-kafka-python", "User:ANONYMOUS")
    assert client["is_connected"] is True
    assert client["port"] > 0
    now_ms = time.time() * 1000
    assert held_by["began_ms"] <= client["last_seen_ms"] <= now_ms + 1000
    partition = asked.get("/v1/partitions/orders/0")
    assert partition["open_transactions"][0]["first_offset"] == held_by["first_offset"]
    assert partition["explanation"].startswith("orders-0: read_committed readers stop at offset 6")
    assert (partition["log_start_offset"], partition["log_end_offset"], partition["segments_count"]) == (0, 11, 1)
    assert asked.get("/v1/partitions/orders/1")["explanation"] is None
    producer_id = held_by["producer_id"]
    found = asked.get(f"/v1/producers/{producer_id}")
    assert (found["client"]["port"], found["transaction"]["transactional_id"]) == (client["port"], "stuck/1")
    lag = asked.get("/v1/groups/billing/lag")["partitions"][0]
    assert (lag["lag"], lag["lag_read_committed"], lag["blocked"]) == (5, 0, 5)
    assert lag["blocked_by"]["transaction"]["transactional_id"] == "stuck/1"
    stuck.abort_transaction(TIMEOUT_S)
    until(lambda: asked.get("/v1/stuck")["stuck"] == [])
    assert asked.get("/v1/groups/billing/lag")["partitions"][0]["blocked_by"] is None


def test_the_client_of_a_producer_is_remembered_after_it_has_gone(asked: Asked) -> None:
    create(asked.admin, "orders")
    producer = asked.open("gone", "orders")
    producer_id = asked.get("/v1/transactions/gone")["producer_id"]
    port = asked.get(f"/v1/producers/{producer_id}")["client"]["port"]
    del producer
    until(lambda: not asked.get(f"/v1/producers/{producer_id}")["client"]["is_connected"])
    client = asked.get(f"/v1/producers/{producer_id}")["client"]
    assert client["port"] == port
    assert client["first_seen_ms"] <= client["last_seen_ms"]
    unknown = asked.get("/v1/producers/4711")
    assert (unknown["client"], unknown["transaction"]) == (None, None)
    assert 0 < unknown["clients_known_since_ms"] <= time.time() * 1000


def test_transactions_are_listed_by_state_and_age(asked: Asked) -> None:
    create(asked.admin, "orders")
    done = asked.open("done", "orders")
    done.commit_transaction(TIMEOUT_S)
    held = [asked.open(name, "orders") for name in ("first", "second")]
    until(lambda: len(asked.get("/v1/transactions?state=CompleteCommit")["transactions"]) == 1)
    everything = asked.get("/v1/transactions")
    assert [one["transactional_id"] for one in everything["transactions"]] == ["first", "second", "done"]
    limited = asked.get("/v1/transactions?limit=1")
    assert (limited["transactions_count"], len(limited["transactions"])) == (3, 1)
    assert asked.get("/v1/transactions?older_than=3600")["transactions"] == []
    states = asked.get("/v1/transactions?state=Ongoing&state=CompleteCommit")
    assert states["transactions_count"] == 3
    assert "the states are" in asked.get("/v1/transactions?state=Nothing", 400)["error"]
    one = asked.get("/v1/transactions/first")
    assert one["partitions"] == [
        {"topic": "orders", "partition": 0, "first_offset": 2, "is_open_here": True, "offsets_behind": 2}
    ]
    assert one["deadline_ms"] == one["start_ms"] + one["timeout_ms"]
    assert one["client"]["client_id"] == "client of first"
    assert asked.get("/v1/transactions/done")["age_ms"] is None
    for producer in held:
        producer.abort_transaction(TIMEOUT_S)


def test_the_history_of_an_id_is_read_from_its_records(asked: Asked) -> None:
    create(asked.admin, "orders")
    name = "shop/1 ä"
    producer = asked.open(name, "orders")
    producer.commit_transaction(TIMEOUT_S)
    path = f"/v1/transactions/{quote(name, safe='')}"
    until(lambda: asked.get(path)["state"] == "CompleteCommit")
    # No reply waits for the last record, so it becomes durable a little later.
    until(lambda: asked.get(f"{path}/history")["events"][-1]["state"] == "CompleteCommit")
    found = asked.get(f"{path}/history")
    states = [event["state"] for event in found["events"]]
    assert list(dict.fromkeys(states)) == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert found["is_complete"] is True
    ongoing = next(event for event in found["events"] if event["state"] == "Ongoing")
    assert ongoing["partitions"] == ["orders-0"]
    assert asked.get("/v1/transactions/nobody/history")["events"] == []


def test_an_operator_aborts_a_transaction_and_fences_its_producer(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    create(asked.admin, "orders")
    producer = asked.open("stuck", "orders", 3)
    path = "/v1/transactions/stuck/abort"
    asked.post(path, {}, 401, token="")
    asked.post(path, {}, 403, token=VIEWER)
    assert asked.get("/v1/transactions/stuck")["state"] == "Ongoing", "nothing has happened"
    asked.get(path, 405)
    with caplog.at_level("INFO", "fencepost.broker.security.audit"):
        done = asked.post(path, {"reason": "night shift"})
    assert done["aborted"] is True
    until(lambda: asked.get("/v1/transactions/stuck")["state"] == "CompleteAbort")
    assert asked.get("/v1/stuck")["stuck"] == []
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    (audited,) = [record.getMessage() for record in caplog.records if "AbortTransaction" in record.getMessage()]
    for part in ("principal='Token:anna'", "resource_name='stuck'", "reason='night shift'", "host='127.0.0.1'"):
        assert part in audited
    assert "no open transaction" in asked.post(path, {}, 409)["error"]
    asked.post("/v1/transactions/nobody/abort", {}, 404)
    until(lambda: asked.values()['fencepost_transactions_ended_total{outcome="fenced"}'] == 1)


def test_a_transaction_that_its_coordinator_knows_is_not_aborted_as_hanging(asked: Asked) -> None:
    create(asked.admin, "orders")
    producer = asked.open("live", "orders")
    refused = asked.post("/v1/partitions/orders/0/abort-hanging", {}, 409)
    assert "its coordinator knows it as that of 'live'" in refused["error"]
    asked.post("/v1/partitions/orders/0/abort-hanging", {"producer_id": 4711}, 404)
    asked.post("/v1/partitions/orders/0/abort-hanging", {"producer_id": "1"}, 400)
    asked.post("/v1/partitions/orders/7/abort-hanging", {}, 404)
    producer.commit_transaction(TIMEOUT_S)


def test_a_hanging_transaction_is_named_and_aborted(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    create(asked.admin, "orders", 2)
    producer = asked.open("hangs", "orders", 2)
    producer_id = asked.get("/v1/transactions/hangs")["producer_id"]
    # The coordinator forgets one partition of it, as a lost record would have it.
    begin = Completion._destinations
    monkeypatch.setattr(Completion, "_destinations", lambda _: [()])
    producer.abort_transaction(TIMEOUT_S)
    until(lambda: asked.get("/v1/transactions/hangs")["state"] == "CompleteAbort")
    monkeypatch.setattr(Completion, "_destinations", begin)
    (one,) = asked.get("/v1/stuck")["stuck"]
    assert (one["cause"], one["held_by"]["producer_id"], one["held_by"]["transaction"]) == (
        "hanging",
        producer_id,
        None,
    )
    assert f"The transaction of producer {producer_id} hangs" in one["explanation"]
    done = asked.post("/v1/partitions/orders/0/abort-hanging", {"producer_id": producer_id, "reason": "lost"})
    assert done == {"aborted": True, "producer_id": producer_id, "last_stable_offset": 3}
    assert asked.get("/v1/stuck")["stuck"] == []


def test_levels_of_loggers_are_set(asked: Asked) -> None:
    assert asked.post("/v1/log-levels", {"logger": "broker.log", "level": "debug"}) == {
        "logger": "broker.log",
        "level": "DEBUG",
    }
    assert asked.post("/v1/log-levels", {"logger": "broker.log", "level": None})["level"] == "INFO"
    assert "does not exist" in asked.post("/v1/log-levels", {"logger": "nothing", "level": "INFO"}, 400)["error"]
    assert "the levels are" in asked.post("/v1/log-levels", {"logger": "broker.log", "level": "LOUD"}, 400)["error"]
    assert "known are" in asked.post("/v1/log-levels", {"logger": "broker.log", "lvl": "INFO"}, 400)["error"]
    asked.post("/v1/log-levels", ["broker.log"], 400)


async def test_the_node_shows_its_settings_without_secrets(tmp_path: Path) -> None:
    async with http_node(tmp_path, ssl_key_password="a secret of the key") as http:
        found = await http.json("/v1/node")
        assert found["cluster_id"] == http.node.cluster_id
        assert found["listeners"][0]["port"] == http.node.address.port
        assert found["settings"]["num.partitions"] == {"value": "1", "is_default": True, "is_secret": False}
        assert found["settings"]["ssl.key.password"]["is_secret"] is True
        assert "a secret of the key" not in json.dumps(found)
        assert found["disk"]["usable_bytes"] > 0
        assert found["uptime_ms"] >= 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v2/node", 404),
        ("GET", "/v1/partitions/nothing/0", 404),
        ("GET", "/v1/partitions/a%2Fb/0", 404),
        ("GET", "/v1/partitions/nothing/-1", 400),
        ("GET", "/v1/partitions/nothing/x", 400),
        ("GET", "/v1/producers/x", 400),
        ("GET", "/v1/producers/99999999999999999999", 400),
        ("GET", "/v1/transactions/nobody", 404),
        ("GET", "/v1/transactions/%FF", 400),
        ("GET", "/v1/transactions?limit=-1", 400),
        ("GET", "/v1/transactions?limit=1&limit=2", 400),
        ("GET", "/v1/groups/nobody/lag", 404),
        ("GET", "/v1/log-levels", 405),
        ("POST", "/v1/node", 405),
        ("POST", "/metrics", 405),
        ("DELETE", "/v1/node", 405),
        ("PUT", "/v1/nothing", 404),
    ],
)
async def test_what_is_wrong_with_a_request_is_said(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with http_node(tmp_path) as http:
        headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
        response = await http.client.request(method, path, headers=headers)
        assert response.status_code == status, response.text
        assert response.json()["error"]


def test_names_of_clients_are_escaped_wherever_they_are_shown(asked: Asked) -> None:
    create(asked.admin, "orders")
    name = '<script>"\\\n\u202e'
    asked.commit(name, "orders", 0)
    producer = asked.open(name, "orders")
    found = asked.values()
    assert f'kafka_consumergroup_members{{consumergroup="{name}"}}' in found
    assert asked.get(f"/v1/groups/{quote(name, safe='')}/lag")["group_id"] == name
    assert asked.get(f"/v1/transactions/{quote(name, safe='')}")["transactional_id"] == name
    producer.abort_transaction(TIMEOUT_S)


def test_kafkas_own_view_of_an_open_transaction_agrees(asked: Asked) -> None:
    create(asked.admin, "orders")
    producer = asked.open("stuck", "orders", 4)
    one = asked.get("/v1/partitions/orders/0")["open_transactions"][0]
    admin = KafkaAdminClient(bootstrap_servers=asked.broker.bootstrap_servers)
    try:
        (described,) = admin.describe_producers([KafkaTopicPartition("orders", 0)]).values()
        (active,) = described.active_producers
        assert (one["producer_id"], one["producer_epoch"]) == (active.producer_id, active.producer_epoch)
        assert one["first_offset"] == active.current_transaction_start_offset
        assert one["last_write_ms"] == active.last_timestamp
        known = admin.describe_transactions(["stuck"])["stuck"]
        assert one["transaction"]["start_ms"] == known.transaction_start_time_ms
        assert one["transaction"]["state"] == known.state.value
    finally:
        admin.close()
    producer.abort_transaction(TIMEOUT_S)
