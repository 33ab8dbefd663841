"""What may leave the console's server of a record."""

from __future__ import annotations

from fencepost.console.values import Part, Values
from fencepost.protocol.record_batch import Record


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
