"""A masked value leaves the console in no way: each page, its JSON, downloads, the tail, raw bytes, searches."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.web.pages import PAGES
from fencepost.schemas.masking import Rules, parse_rules
from fencepost.schemas.options import RegistryOptions
from tests.console.running import RunningConsole, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.confluent_values import ORDER, ORDER_SCHEMA, avro, client_of
from tests.support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.integration

SECRET = "4999888877776666"
RULES = """
orders  value.card.number  hide
orders  key.user           hash
orders  header.token       hide
"""
KEY = json.dumps({"user": SECRET})


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, registry: SchemaRegistry) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("plain", 1, 1)]).values():
            future.result(60)
        with client_of(registry.url) as client:
            order = avro(client, "orders", {**ORDER, "card": {"number": SECRET}})
        producer = Producer({"bootstrap.servers": process.bootstrap})
        text = json.dumps({"card": {"number": SECRET}}).encode()
        damaged = b"\x00" + registry.register("orders-value", ORDER_SCHEMA).to_bytes(4, "big") + SECRET.encode()
        for value in (order, text, SECRET.encode(), damaged, b"\x00\x00\x00\x00\x63" + SECRET.encode(), text[:-1]):
            producer.produce("orders", value, KEY, headers={"token": SECRET})
        producer.produce("plain", order)
        assert producer.flush(60) == 0
        yield process


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess, registry: SchemaRegistry) -> Iterator[httpx.Client]:
    rules = Rules(parse_rules(RULES, "masking"))
    options = options_for(broker, registry=RegistryOptions((registry.url,)), masking=rules)
    with RunningConsole(options) as console, console.browser() as client:
        yield client


def addresses() -> Iterator[str]:
    for page in PAGES:
        for offset in range(6) if "{offset}" in page else (0,):
            yield page.replace("{topic}", "orders").replace("{partition}", "0").replace("{offset}", str(offset))


def test_no_page_of_a_topic_has_it(browser: httpx.Client) -> None:
    read = 0
    for address in addresses():
        for query in ("", "?format=text", "?format=json", "?format=hex", "?raw=yes", "?as=records", "?as=shown"):
            for kind in ("text/html", "application/json"):
                answer = browser.get(address + query, headers={"Accept": kind})
                forms = (SECRET, SECRET.encode().hex(), SECRET.encode().hex(" "), json.dumps(SECRET)[1:-1])
                assert not any(form in answer.text for form in forms), (address, query, kind)
                read += answer.status_code == 200
    assert read > 200


@pytest.mark.parametrize(
    "query",
    [
        {"contains": SECRET},
        {"contains": SECRET[:10]},
        {"key": SECRET},
        {"header": "token", "header_value": SECRET},
        {"field": "card.number", "op": "=", "operand": SECRET},
        {"field": "card.number", "op": "contains", "operand": SECRET[4:8]},
    ],
)
def test_a_search_cannot_find_it(browser: httpx.Client, query: dict[str, str]) -> None:
    for format_ in ("text", "json", "hex"):
        parameters = "&".join(f"{name}={value}" for name, value in {**query, "format": format_}.items())
        assert get_json(browser, f"/topics/orders/messages?{parameters}")["rows"] == []


def test_the_page_says_what_is_masked_and_why(browser: httpx.Client) -> None:
    text = text_of(browser.get("/topics/orders/messages?order=oldest").text)
    assert "Avro orders-value version 1 · masked" in text
    assert "hidden as a whole: a rule hides a part of it, and it cannot be read: it does not fit its schema" in text
    assert "its schema has the id 99: the schema registry does not have its schema" in text


def test_a_topic_without_a_rule_is_shown_by_its_schema(browser: httpx.Client) -> None:
    assert SECRET in browser.get("/topics/plain/messages").text
    rows = get_json(browser, "/topics/plain/messages")["rows"]
    assert [one["schema"] for one in rows] == ["Avro orders-value version 1"]


def test_a_filter_by_field_finds_what_was_read_by_the_schema(browser: httpx.Client) -> None:
    found = get_json(browser, f"/topics/plain/messages?field=card.number&op=%3D&operand={SECRET}")
    assert len(found["rows"]) == 1
