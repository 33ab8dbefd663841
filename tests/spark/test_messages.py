"""Rows to records: the columns that Spark's own sink takes, as the producer takes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fencepost.spark.messages import HEADERS_TYPE, Layout

ALL = [("key", "string"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("headers", HEADERS_TYPE)]


def records(layout: Layout, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [record for chunk in layout.chunks_of_arrow([batch]) for record in layout.records(chunk)]


def test_each_column_has_its_place_in_the_record() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.record_batch(
        [pa.array(["k", None]), pa.array([b"v", None]), pa.array(["a", "b"]), pa.array([3, None], pa.int32()), headers],
        names=[name for name, _ in ALL],
    )
    assert records(Layout.of(ALL, None), batch) == [
        ("a", b"v", b"k", {"partition": 3, "headers": [("h", b"1"), ("h", None)]}),
        ("b", None, None, {}),
    ]


def test_rows_give_the_same_records_as_arrow() -> None:
    layout = Layout.of(ALL, None)
    rows = [("k", bytearray(b"v"), "a", 3, [("h", bytearray(b"1"))]), (None, None, "b", None, None)]
    (chunk,) = layout.chunks_of_rows(rows)
    assert list(layout.records(chunk)) == [
        ("a", b"v", "k", {"partition": 3, "headers": [("h", b"1")]}),
        ("b", None, None, {}),
    ]


def test_strings_are_taken_as_utf_8() -> None:
    batch = pa.record_batch([pa.array(["ä€"])], names=["value"])
    assert records(Layout.of([("value", "string")], "t"), batch) == [("t", "ä€".encode(), None, {})]


def test_the_topic_option_counts_more_than_the_column() -> None:
    batch = pa.record_batch([pa.array([7]), pa.array(["v"])], names=["topic", "value"])
    assert records(Layout.of([("topic", "int"), ("value", "string")], "t"), batch) == [("t", b"v", None, {})]


def test_columns_that_are_no_part_of_a_record_are_left_out() -> None:
    batch = pa.record_batch([pa.array([1.5]), pa.array(["v"])], names=["weight", "value"])
    assert records(Layout.of([("weight", "double"), ("value", "string")], "t"), batch) == [("t", b"v", None, {})]


def test_an_empty_batch_is_no_chunk() -> None:
    batch = pa.record_batch([pa.array([], pa.string())], names=["value"])
    assert list(Layout.of([("value", "string")], "t").chunks_of_arrow([batch])) == []
    assert list(Layout.of([("value", "string")], "t").chunks_of_rows([])) == []


def test_many_rows_are_taken_in_chunks() -> None:
    chunks = list(Layout.of([("value", "string")], "t").chunks_of_rows((str(number),) for number in range(10_000)))
    assert len(chunks) == 3
    assert [value for chunk in chunks for value in chunk.values] == [str(number) for number in range(10_000)]


@pytest.mark.parametrize(
    ("fields", "topic", "message"),
    [
        ([("value", "string")], None, "topic option required when no 'topic' attribute is present"),
        ([("key", "string")], "t", "Required attribute 'value' not found"),
        ([("value", "int")], "t", r"value attribute unsupported type int. value must be a\(n\) string or binary"),
        ([("value", "string"), ("key", "bigint")], "t", "key attribute unsupported type bigint"),
        ([("value", "string"), ("topic", "binary")], None, "topic attribute unsupported type binary"),
        ([("value", "string"), ("partition", "bigint")], "t", "partition attribute unsupported type bigint"),
        ([("value", "string"), ("headers", "array<string>")], "t", "headers attribute unsupported type array<string>"),
    ],
)
def test_columns_that_make_no_record_are_refused_in_words(
    fields: list[tuple[str, str]], topic: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.of(fields, topic)


def test_a_null_topic_is_refused_in_words() -> None:
    batch = pa.record_batch([pa.array(["v"]), pa.array([None], pa.string())], names=["value", "topic"])
    with pytest.raises(ValueError, match="null topic present in the data"):
        records(Layout.of([("value", "string"), ("topic", "string")], None), batch)
