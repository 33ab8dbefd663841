"""What may leave the console's server of a record."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.console.options import ConsoleOptions
from fencepost.console.values import MASKED, Part, Shown, Values
from fencepost.protocol.record_batch import Record
from fencepost.schemas.masking import HIDDEN, Rules, parse_rules
from fencepost.schemas.options import RegistryOptions
from tests.support.confluent_values import ORDER_READ, avro, client_of
from tests.support.schema_registry import SchemaRegistry

LOOPBACK = "127.0.0.1"


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record(offset=7, timestamp_ms=1, key=key, value=value, headers=headers)


async def test_bytes_that_are_no_text_are_shown_in_hex() -> None:
    (shown,) = await Values().show("orders", [record(b"k", b"\xff\x00", ("trace", None))])
    assert (shown.key, shown.value) == (Part("k"), Part("ff 00"))
    assert shown.headers == (("trace", Part(None)),)


async def test_json_is_laid_out_and_what_is_none_stays_as_it_is() -> None:
    one, other = await Values().show("orders", [record(None, b'{"a":1}'), record(None, b"{")], "json")
    assert (one.key.text, one.value.text, other.value.text) == (None, '{\n  "a": 1\n}', "{")


async def test_records_of_internal_topics_are_read() -> None:
    key = b"\x00\x02\x00\x05group"
    shown, in_hex = [
        (await Values().show("__consumer_offsets", [record(key, b"x")], form))[0] for form in ("text", "hex")
    ]
    assert (shown.key.text, in_hex.key.text) == ("group: group", key.hex(" "))


async def test_a_search_sees_the_key_the_value_and_headers() -> None:
    (shown,) = await Values().show("orders", [record(b"k", None, ("trace", b"t"))])
    assert list(shown.pieces()) == [b"k", b"", b"trace", b"t"]


def options(rules: str = "", url: str = "") -> ConsoleOptions:
    return ConsoleOptions(
        ((LOOPBACK, 9092),),
        registry=RegistryOptions((url,)) if url else None,
        masking=Rules(parse_rules(rules, "masking"), b"key") if rules else None,
    )


@contextmanager
def orders_in_registry() -> Iterator[tuple[SchemaRegistry, bytes]]:
    with SchemaRegistry() as server, client_of(server.url) as client:
        yield server, avro(client, "orders")


async def show(made: Values, value: bytes | None, shown_format: str = "text", *headers: tuple[str, bytes]) -> Shown:
    try:
        (shown,) = await made.show("orders", [record(b"k", value, *headers)], shown_format)
        return shown
    finally:
        await made.close()


async def test_a_value_with_a_schema_is_shown_as_json_with_the_schemas_name() -> None:
    with orders_in_registry() as (server, order):
        shown = await show(Values(options(url=server.url)), order)
        in_hex = await show(Values(options(url=server.url)), order, "hex")
    assert shown.value.data == ORDER_READ
    assert shown.value.text == json.dumps(ORDER_READ)
    assert shown.value.schema == "Avro orders-value version 1"
    assert shown.record.value == order
    assert in_hex.value.text == order.hex(" ")
    assert any(b'"4111111111111111"' in piece for piece in shown.pieces())


async def test_a_value_that_cannot_be_read_is_shown_in_bytes_with_the_reason() -> None:
    with SchemaRegistry() as server:
        shown = await show(Values(options(url=server.url)), b"\x00\x00\x00\x00\x07\xff")
    assert shown.value.text == "00 00 00 00 07 ff"
    assert shown.value.note == "its schema has the id 7: the schema registry does not have its schema"


@pytest.mark.parametrize("shown_format", ["text", "json", "hex"])
async def test_a_masked_field_leaves_the_server_in_no_way(shown_format: str) -> None:
    rules = "orders value.card.number last-four\norders header.token hide"
    with orders_in_registry() as (server, order):
        made = Values(options(rules, server.url))
        shown = await show(made, order, shown_format, ("token", b"4111111111111111"))
    assert b"4111111" not in pickle.dumps(shown)
    assert shown.value.data["card"] == {"number": "…1111"}
    assert shown.value.note == MASKED
    assert shown.headers == (("token", Part(HIDDEN, note=MASKED)),)


async def test_json_without_a_schema_is_masked_too() -> None:
    shown = await show(Values(options("orders value.card hide")), b'{"card": "4111", "id": 1}')
    assert shown.value.text == '{"card": "(hidden)", "id": 1}'
    assert shown.record.value == shown.value.text.encode()


@pytest.mark.parametrize(
    "value",
    [b"4111", b"card=4111", b'{"card": "4111"', b'{"card": 1, "card": 4111}', b"\x00\x00\x00\x00\x074111", b"\xff4111"],
)
async def test_what_cannot_be_read_is_hidden_as_a_whole_if_a_rule_is_for_a_part(value: bytes) -> None:
    with SchemaRegistry() as server:
        for url in ("", server.url):
            shown = await show(Values(options("orders value.card hide", url)), value)
            assert b"4111" not in pickle.dumps(shown)
            assert shown.value.text == HIDDEN


async def test_a_registry_that_is_away_hides_what_it_would_mask() -> None:
    with orders_in_registry() as (server, order):
        pass
    shown = await show(Values(options("orders value.card.number hide", server.url)), order)
    assert b"4111111" not in pickle.dumps(shown)
    assert "hidden as a whole" in shown.value.note
    assert "cannot be reached" in shown.value.note


async def test_damaged_bytes_are_not_quoted_in_the_reason() -> None:
    with SchemaRegistry() as server:
        schema_id = server.register("orders-value", '{"type": "string", "logicalType": "uuid"}')
        value = b"\x00" + schema_id.to_bytes(4, "big") + b"\x084111"
        shown = await show(Values(options("orders value.card hide", server.url)), value)
    assert b"4111" not in pickle.dumps(shown)


async def test_null_stays_null_and_who_may_see_all_sees_all() -> None:
    made = Values(options("* value hide\n* key hash"))
    assert (await show(made, None)).value == Part(None)
    (shown,) = await made.show("orders", [record(b"k", b"v")], unmasked=True)
    assert (shown.key, shown.value, shown.record) == (Part("k"), Part("v"), record(b"k", b"v"))


async def test_a_rule_for_a_whole_key_needs_no_schema() -> None:
    shown = await show(Values(options("orders key hash")), b"v")
    assert shown.key.text is not None
    assert shown.key.text.startswith("#")
    assert shown.record.key == shown.key.text.encode()


def test_a_header_alone_is_masked() -> None:
    made = Values(options("orders header.__dlq.errors.message hide"))
    assert made.header("orders", "__dlq.errors.message", "card 4111 is refused") == HIDDEN
    assert made.header("other", "__dlq.errors.message", "text") == Values().header("orders", "x", "text") == "text"


async def test_records_of_internal_topics_are_masked_too() -> None:
    made = Values(options("__consumer_offsets key hide"))
    (shown,) = await made.show("__consumer_offsets", [record(b"\x00\x02\x00\x05group", b"x")])
    assert shown.key.text == HIDDEN
    assert b"group" not in pickle.dumps(shown)
