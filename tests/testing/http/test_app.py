"""The control API does what its document says: every operation, every answer, every refusal."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from jsonschema import Draft202012Validator

from fencepost.testing.http import app as app_module
from fencepost.testing.http import brokers as brokers_module
from tests.testing.http.described import Described, open_client


@pytest.fixture(scope="module")
def api() -> Iterator[Described]:
    with open_client() as client:
        yield Described(client)


@pytest.fixture
def broker(api: Described) -> Iterator[str]:
    created = api.call("create_broker")["broker"]
    yield created
    api.client.delete(f"/brokers/{created}")


def producer_of(api: Described, broker: str, transactional_id: str = "till-1") -> Producer:
    address = api.call("broker", broker=broker)["bootstrap_servers"]
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "client.id": "till",
            "reconnect.backoff.max.ms": 100,
            "metadata.recovery.strategy": "none",
        }
    )
    producer.list_topics(timeout=20)
    producer.init_transactions(20)
    return producer


def test_every_operation_answers_as_it_is_described() -> None:
    with open_client() as client:
        api = Described(client)
        broker = api.call("create_broker", settings={"num.partitions": 2})["broker"]
        assert api.call("program")["brokers"] == 1
        assert [one["broker"] for one in api.call("brokers")["brokers"]] == [broker]
        contents(api, broker)
        faults(api, broker)
        assert "topic orders-0" in api.call("describe", broker=broker, requests=3)["text"]
        assert api.call("crash", broker=broker)["is_running"] is False
        assert api.call("restart", broker=broker)["is_running"] is True
        assert api.call("stop", broker=broker)["is_running"] is False
        assert api.call("restart", broker=broker) == api.call("broker", broker=broker)
        assert api.call("close_broker", broker=broker)["never_fired"] == []

        process = api.call("create_broker", process=True)["broker"]
        assert api.call("freeze", broker=process)["process_id"] > 0
        assert "frozen" in api.refusal("topics", broker=process)[2]
        api.call("thaw", broker=process)
        assert api.call("topics", broker=process) == {"topics": {}}
        api.call("close_broker", broker=process)
        assert {name for name, status in api.called if status < 300} == api.operations().keys()


def contents(api: Described, broker: str) -> None:
    """Operations on topics, records, transactions and groups."""
    assert api.call("topic", broker=broker, name="orders", partitions=2, configs={"retention.ms": 1000}) == {
        "name": "orders"
    }
    api.call("topic", broker=broker, name="old")
    api.call("delete_topic", broker=broker, topic="old")
    assert api.call("topics", broker=broker) == {"topics": {"orders": 2}}
    api.call("produce", broker=broker, topic="orders", values=["tea", None], partition=1, headers={"till": "7"})
    records = api.call("records", broker=broker, topic="orders", count=2)
    assert [record["value"] for record in records["records"]] == ["tea", None]

    producer = producer_of(api, broker)
    producer.begin_transaction()
    producer.produce("orders", b"milk", partition=0)
    producer.flush()
    assert api.call("transactions", broker=broker) == {"transactions": {"till-1": "Ongoing"}}
    transaction = api.call("transaction", broker=broker, transactional_id="till-1")
    assert transaction["partitions"] == [{"topic": "orders", "partition": 0}]
    assert api.call("fence", broker=broker, transactional_id="till-1")["producer_id"] == transaction["producer_id"]
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(20)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert api.call("transaction", broker=broker, transactional_id="till-1")["state"] == "Empty"

    api.call("set_offset", broker=broker, group="billing", topic="orders", partition=1, offset=1)
    assert api.call("groups", broker=broker) == {"groups": {"billing": "Empty"}}
    group = api.call("group", broker=broker, group_id="billing")
    assert group["offsets"] == [{"topic": "orders", "partition": 1, "offset": 1, "lag": 1}]
    api.call("wait_for_lag", broker=broker, group="billing", lag=1)
    requests = api.call("requests", broker=broker, api="InitProducerId", fields=True)["requests"]
    assert requests[0]["fields"]["transactional_id"] == "till-1"
    assert requests[0]["reply"]["error_code"] == 0
    assert requests[0]["client_id"] == "till"
    api.call("advance", broker=broker, minutes=16)


def faults(api: Described, broker: str) -> None:
    """Operations that set faults, ask about them and end them."""
    orders: list[tuple[str, dict[str, Any]]] = [
        ("fail", {"api": "EndTxn", "error": "NOT_COORDINATOR"}),
        ("delay", {"api": "Fetch", "seconds": 2}),
        ("hold", {"api": "Produce", "topic": "orders", "partition": 0}),
        ("disconnect", {"api": "EndTxn", "transactional_id": "till-1"}),
        ("crash_after", {"api": "EndTxn", "durable": False}),
    ]
    for number, (name, arguments) in enumerate(orders, 1):
        placed = api.call(name, broker=broker, optional=True, **arguments)
        assert (placed["fault"], placed["fired"], placed["optional"]) == (number, 0, True)
        assert placed["text"].startswith(f"{name}(")
        assert placed == api.call("fault", broker=broker, fault=number)
    assert [one["fault"] for one in api.call("faults", broker=broker)["faults"]] == [1, 2, 3, 4, 5]
    address = api.call("broker", broker=broker)["bootstrap_servers"]
    producer = Producer({"bootstrap.servers": address})
    producer.produce("orders", b"held", partition=0)
    producer.poll(0)
    assert api.call("wait_until_fired", broker=broker, fault=3, count=1)["waiting"] == 1
    assert api.call("release", broker=broker, fault=3) == {"released": 1}
    assert producer.flush(20) == 0
    for number in (1, 2, 3, 4, 5):
        api.call("remove", broker=broker, fault=number)


# The document


def test_the_document_is_of_openapi_3_1_and_its_schemas_are_schemas(api: Described) -> None:
    assert api.document["openapi"] == "3.1.0"
    for name, (method, path, operation) in api.operations().items():
        schemas = [one["schema"] for one in operation["parameters"]]
        schemas += [one["content"]["application/json"]["schema"] for one in [operation.get("requestBody")] if one]
        for schema in schemas:
            Draft202012Validator.check_schema(schema)
        assert operation["summary"].endswith("."), name
        assert method in ("get", "post", "delete")
        named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert named == {part.strip("{}") for part in path.split("/") if part.startswith("{")}
    for schema in api.document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def wrong_values(schema: dict[str, Any]) -> list[Any]:
    """Values that a schema does not allow, found from it."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    found: list[Any] = [[[]], {"a": [[]]}]
    if "enum" in schema:
        found.append("neither")
    if "maximum" in schema:
        found += [schema["maximum"] + 1, schema["minimum"] - 1, "7x", True]
    if "maxLength" in schema and schema["maxLength"] < 10_000:
        found.append("x" * (schema["maxLength"] + 1))
    if schema.get("minLength"):
        found.append("")
    if kinds and "null" not in kinds and "anyOf" not in schema:
        found.append(None)
    return found


NEEDED = {
    "topic": "t",
    "values": ["v"],
    "api": "Fetch",
    "error": "NOT_COORDINATOR",
    "name": "t",
    "transactional_id": "i",
    "group": "g",
    "offset": 1,
}
"""Right values for required arguments."""


def test_every_argument_of_a_body_is_refused_if_it_is_not_as_described(api: Described, broker: str) -> None:
    tried = 0
    for name, (method, path, operation) in api.operations().items():
        if method != "post":
            continue
        address = path.format(broker=broker, fault=1)
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        given = {one: NEEDED[one] for one in body.get("required", ())}
        assert api.validator(body).is_valid(given)
        for one, schema in body["properties"].items():
            for wrong in wrong_values(schema):
                assert not api.validator(schema).is_valid(wrong), (name, one, wrong)
                assert one in refused_input(api, name, address, {**given, one: wrong})
                tried += 1
        for one in given:
            without = {key: value for key, value in given.items() if key != one}
            assert f"{name} needs {one}" in refused_input(api, name, address, without)
        assert "no field 'no_such'" in refused_input(api, name, address, {**given, "no_such": 1})
    assert tried > 200


def test_every_argument_of_a_query_is_refused_if_it_is_not_as_described(api: Described, broker: str) -> None:
    tried = 0
    for name, (method, path, operation) in api.operations().items():
        if method == "post":
            continue
        address = path.format(broker=broker, fault=1)
        described = {one["name"]: one["schema"] for one in operation["parameters"] if one["in"] == "query"}
        needed = {one["name"]: "x" for one in operation["parameters"] if one["in"] == "query" and one["required"]}
        for one, schema in described.items():
            wrong_texts = ["7x", "", "-1", "1e99"] if schema.get("type") != "string" or "enum" in schema else []
            for wrong in wrong_texts:
                response = api.client.request(method, address, params={**needed, one: wrong})
                assert response.status_code == 400, (name, one, wrong, response.text)
                assert one in response.json()["message"]
                tried += 1
        response = api.client.request(method, address, params={**needed, "no_such": "1"})
        assert response.status_code == 400
        assert "no field 'no_such'" in response.json()["message"]
        api.check(name, response)
    assert tried > 30


def refused_input(api: Described, name: str, address: str, body: dict[str, Any]) -> str:
    """The sentence of a refusal of an operation's arguments."""
    response = api.client.post(address, json=body)
    assert response.status_code == 400, (name, body, response.text)
    api.check(name, response)
    assert response.json()["error"] == "input"
    sentence: str = response.json()["message"]
    return sentence


# Refusals


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is a list: give an object"),
        (b'{"process": NaN}', "NaN is no number"),
        (b'{"process": true, "process": true}', "has 'process' twice"),
        (b'{"settings": {"a": "\\ud800"}}', "half of a surrogate pair"),
        (b"[" * 100_000, "nested too deep"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
def test_a_body_that_is_no_object_of_arguments_is_refused(api: Described, body: bytes, said: str) -> None:
    response = api.client.post("/brokers", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    api.check("create_broker", response)
    assert said in response.json()["message"]


def test_what_a_form_of_a_web_page_could_send_is_refused(api: Described) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = api.client.post("/brokers", content=b"{}", headers={"Content-Type": kind})
        assert response.status_code == 415
        api.check("create_broker", response)
        assert "application/json" in response.json()["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://127.0.0.1:8000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "10.0.0.1"}, 421),
    ],
)
def test_a_web_page_cannot_drive_it(api: Described, headers: dict[str, str], status: int) -> None:
    before = api.call("program")["brokers"]
    response = api.client.post("/brokers", json={}, headers=headers)
    assert response.status_code == status
    api.check("create_broker", response)
    assert api.client.get("/openapi.json", headers=headers).status_code == status
    assert api.call("program")["brokers"] == before


@pytest.mark.parametrize("host", ["localhost", "localhost:8", "127.0.0.1:8", "[::1]:8", "127.8.8.8"])
def test_a_program_may_ask_by_each_name_of_this_machine(api: Described, host: str) -> None:
    assert api.client.get("/", headers={"Host": host}).status_code == 200


def test_an_address_or_method_that_does_not_exist_is_refused_with_those_that_do(api: Described) -> None:
    missing = api.client.get("/brokers/b1/no-such")
    assert missing.status_code == 404
    assert (
        missing.json()["message"] == "there is no operation at '/brokers/b1/no-such': GET /openapi.json describes all"
    )
    wrong = api.client.put("/brokers")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "not_found")
    assert {"GET", "POST"} <= set(wrong.headers["Allow"].split(", "))
    assert api.client.head("/brokers").status_code == 200


def test_a_broker_or_fault_that_does_not_exist_is_not_found(api: Described, broker: str) -> None:
    assert api.refusal("topics", broker="b999")[:2] == (404, "not_found")
    assert api.refusal("release", broker=broker, fault=1)[:2] == (404, "not_found")
    api.call("close_broker", broker=broker)
    assert api.refusal("close_broker", broker=broker)[:2] == (404, "not_found")
    assert api.refusal("describe", broker=broker)[:2] == (404, "not_found")


def test_what_a_helper_of_pytest_would_raise_is_a_refusal_with_its_sentence(api: Described, broker: str) -> None:
    api.call("topic", broker=broker, name="orders")
    assert api.refusal("records", broker=broker, topic="order") == (
        409,
        "misuse",
        "there is no topic 'order': create it with topic('order') first; did you mean 'orders'?",
    )
    assert api.refusal("fail", broker=broker, api="EndTx", error="NOT_COORDINATOR")[:2] == (409, "misuse")
    assert api.refusal("freeze", broker=broker)[2].endswith("create one with process=true")
    assert api.refusal("advance", broker=broker)[:2] == (409, "misuse")
    refused = api.send("topic", broker=broker, name="no/such")
    assert (refused.status_code, refused.json()["code"]) == (409, "INVALID_TOPIC_EXCEPTION")
    waited = api.send("records", broker=broker, topic="orders", count=1, timeout=0.05).json()
    assert (waited["error"], waited["message"]) == (
        "waited_in_vain",
        "topic 'orders' has 0 records, not 1 after 0.05 s",
    )
    assert waited["description"].startswith("The broker's view")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"no.such": 1}, "unknown setting 'no.such'"),
        ({"num.partitions": "many"}, "settings: num.partitions: expected whole number"),
        ({"log.dirs": "/tmp/elsewhere"}, "data are temporary"),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, "which other machines reach"),
        ({"advertised.listeners": "PLAINTEXT://[2001:db8::1]:9092"}, "which other machines reach"),
    ],
)
def test_settings_that_cannot_be_are_refused(api: Described, settings: dict[str, object], said: str) -> None:
    before = api.call("program")["brokers"]
    status, kind, sentence = api.refusal("create_broker", settings=settings)
    assert (status, kind) == (400, "input")
    assert said in sentence
    assert api.call("program")["brokers"] == before


def test_a_body_beyond_the_limit_is_refused(api: Described, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "LONGEST_BODY_BYTES", 1024 * 1024)
    response = api.client.post("/brokers", json={"settings": {"x": "y" * 1024 * 1024}})
    assert response.status_code == 413
    api.check("create_broker", response)
    assert "larger than 1 MiB" in response.json()["message"]


def test_more_brokers_than_the_limit_are_refused_until_one_is_closed(
    api: Described, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers_module, "MOST_BROKERS", api.call("program")["brokers"])
    status, kind, sentence = api.refusal("create_broker")
    assert (status, kind) == (429, "too_much")
    assert "DELETE /brokers/{broker}" in sentence
    api.call("close_broker", broker=broker)
    api.call("close_broker", broker=api.call("create_broker")["broker"])


def test_more_operations_than_the_limit_are_refused_but_a_broker_can_be_closed(
    api: Described, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.call("topic", broker=broker, name="orders")
    monkeypatch.setattr(app_module, "MOST_OPERATIONS", 1)
    answers: list[tuple[int, str, str]] = []

    def wait() -> None:
        # It is refused itself if it comes while the question below is answered.
        while not answers or answers[-1][0] == 429:
            answers.append(api.refusal("records", broker=broker, topic="orders", count=1, timeout=60))

    waiting = threading.Thread(target=wait)
    waiting.start()
    give_up_at_s = time.monotonic() + 30
    while (refused := api.client.get(f"/brokers/{broker}")).status_code == 200:
        assert time.monotonic() < give_up_at_s
    assert (refused.status_code, refused.json()["error"]) == (429, "too_much")
    assert broker in str(api.call("brokers")), api.call("program")
    api.call("close_broker", broker=broker)
    waiting.join(30)
    # The operation was admitted; on a busy machine its thread may not have looked for the broker yet.
    assert answers[-1][:2] in ((409, "misuse"), (404, "not_found"))


def test_an_error_that_nobody_expects_is_a_sentence_and_the_next_operation_works(
    api: Described, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("fencepost.testing.methods.BrokerMethods.topics", fail)
        assert api.refusal("topics", broker=broker)[:2] == (500, "failed")
    assert api.call("topics", broker=broker) == {"topics": {}}


# What tests need it for


def test_a_commit_whose_reply_is_lost_is_committed_once(api: Described, broker: str) -> None:
    producer = producer_of(api, broker)
    producer.begin_transaction()
    producer.produce("orders", b"tea")
    lost = api.call("disconnect", broker=broker, api="EndTxn")
    producer.commit_transaction(30)
    assert api.call("fault", broker=broker, fault=lost["fault"])["fired"] == 1
    assert [one["value"] for one in api.call("records", broker=broker, topic="orders")["records"]] == ["tea"]
    assert api.call("close_broker", broker=broker)["never_fired"] == []


def test_sixteen_minutes_pass_at_once_and_abort_a_transaction(api: Described, broker: str) -> None:
    producer = producer_of(api, broker)
    producer.begin_transaction()
    producer.produce("orders", b"tea")
    producer.flush()
    api.call("advance", broker=broker, minutes=16)
    assert api.call("transaction", broker=broker, transactional_id="till-1")["state"] == "CompleteAbort"
    assert api.call("records", broker=broker, topic="orders")["records"] == []
    uncommitted = api.call("records", broker=broker, topic="orders", isolation="read_uncommitted")
    assert [one["value"] for one in uncommitted["records"]] == ["tea"]


def test_a_fault_that_never_fired_is_reported_when_its_broker_is_closed(api: Described, broker: str) -> None:
    api.call("fail", broker=broker, api="EndTxn", error="NOT_COORDINATOR")
    api.call("hold", broker=broker, api="Fetch", optional=True)
    closed = api.call("close_broker", broker=broker)
    (sentence,) = closed["never_fired"]
    assert sentence.startswith("fail('EndTxn', error='NOT_COORDINATOR') never fired")
    assert closed["description"].startswith("The broker's view")


def test_the_data_of_a_closed_broker_are_kept_if_that_is_asked_for(api: Described, broker: str) -> None:
    api.call("produce", broker=broker, topic="orders", values=["tea"])
    kept = Path(api.call("close_broker", broker=broker, keep=True)["kept"])
    try:
        assert [path.name for path in kept.iterdir() if path.name.startswith("orders")] == ["orders-0"]
    finally:
        rmtree(kept.parent)


def test_contents_of_any_bytes_pass_as_base64(api: Described, broker: str) -> None:
    text = base64.b64encode(b"\xff\x00").decode()
    api.call(
        "produce",
        broker=broker,
        topic="orders",
        values=[text],
        key=text,
        headers={"h": text, "n": None},
        encoding="base64",
    )
    (record,) = api.call("records", broker=broker, topic="orders", encoding="base64")["records"]
    assert (record["key"], record["value"]) == (text, text)
    assert record["headers"] == [{"name": "h", "value": text}, {"name": "n", "value": None}]
    assert api.refusal("records", broker=broker, topic="orders") == (
        409,
        "misuse",
        "the key of the record orders-0 at offset 0 is not UTF-8: ask with encoding=base64",
    )
    assert api.refusal("produce", broker=broker, topic="orders", values=["?"], encoding="base64")[:2] == (400, "input")


def test_records_come_in_pages(api: Described, broker: str) -> None:
    api.call("produce", broker=broker, topic="orders", values=[str(number) for number in range(7)])
    values: list[str] = []
    skip: Any = 0
    while skip is not None:
        page = api.call("records", broker=broker, topic="orders", skip=skip, limit=3)
        assert page["total"] == 7
        values += [one["value"] for one in page["records"]]
        skip = page["next_skip"]
    assert values == [str(number) for number in range(7)]
    assert api.call("records", broker=broker, topic="orders", skip=7)["records"] == []


def test_two_brokers_with_one_topic_know_nothing_of_each_other(api: Described) -> None:
    first, second = (api.call("create_broker")["broker"] for _ in range(2))
    api.call("produce", broker=first, topic="orders", values=["tea"])
    api.call("topic", broker=second, name="orders")
    api.call("advance", broker=first, minutes=1)
    assert api.call("records", broker=second, topic="orders")["total"] == 0
    api.call("close_broker", broker=first)
    assert api.call("topics", broker=second) == {"topics": {"orders": 1}}
    api.call("close_broker", broker=second)


def test_a_member_of_a_group_keeps_its_offset_from_being_set(api: Described, broker: str) -> None:
    api.call("produce", broker=broker, topic="orders", values=["tea"])
    address = api.call("broker", broker=broker)["bootstrap_servers"]
    consumer = Consumer({"bootstrap.servers": address, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    group = api.call("group", broker=broker, group_id="billing")
    assert group["members"][0]["partitions"] == [{"topic": "orders", "partition": 0}]
    refused = api.send("set_offset", broker=broker, group="billing", topic="orders", offset=0)
    assert (refused.status_code, refused.json()["code"]) == (409, "UNKNOWN_MEMBER_ID")
    consumer.close()


def test_the_end_of_the_application_closes_all_brokers() -> None:
    before = set(threading.enumerate())
    with open_client() as client:
        api = Described(client)
        addresses = [api.call("create_broker")["bootstrap_servers"] for _ in range(3)]
    assert len(set(addresses)) == 3
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "fencepost-broker"]
