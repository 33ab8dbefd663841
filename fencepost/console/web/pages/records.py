"""Messages: the records of a partition with a mark each, and a form to produce one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from fencepost.client.errors import ClusterError
from fencepost.client.producing import produce
from fencepost.console import words
from fencepost.console.reading.internal_records import decoded
from fencepost.console.reading.records import offset_at_time, read_page
from fencepost.console.reading.topics import fill_offsets
from fencepost.console.reading.transactions import list_transactions
from fencepost.console.record_marks import Gap, ShownRecord
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.pages.topics import read_topic
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path, whole_number, with_query
from fencepost.protocol.checked_json import JsonError, parse

ROWS: Final = 50
LONGEST_SHOWN: Final = 20_000
FORMATS: Final = ("text", "json", "hex")
LARGEST_VALUE: Final = 900_000


@dataclass(frozen=True)
class MessageRow:
    """A record as the page shows it. key, value: text in the chosen format; None for null."""

    row: ShownRecord
    key: str | None
    value: str | None
    value_bytes: int
    is_cut: bool
    headers: tuple[tuple[str, str], ...]
    transactional_id: str | None


@dataclass(frozen=True)
class GapRow:
    """Offsets without a record."""

    gap: Gap


async def messages(visit: Visit) -> Page:
    name = visit.request.path_params["topic"]
    state = await read_topic(visit, name)
    index = visit.number("partition", 0)
    partition = next((one for one in state.partitions if one.index == index), None)
    if partition is None:
        raise NotFoundError(f"{name} has no partition {index}")
    await fill_offsets(visit.cluster, [partition])
    if partition.error is not None:
        raise ClusterError(f"{partition.name} does not answer: {partition.error}")
    start, end = partition.start or 0, partition.high_watermark or 0
    isolation = "committed" if visit.parameter("isolation") == "committed" else "all"
    shown_format = visit.parameter("format", "text")
    time_text = visit.parameter("time").strip()
    if time_text:
        try:
            first = await offset_at_time(visit.cluster, partition, words.parse_clock(time_text))
        except ValueError as error:
            raise BadFormError(str(error)) from None
    else:
        latest = max(start, end - ROWS)
        first = max(start, min(end, visit.number("from", latest)))
    contains = visit.parameter("contains")
    page = await read_page(
        visit.cluster, partition, first, rows=ROWS, only_committed=isolation == "committed", contains=contains
    )
    transactions = await list_transactions(visit.cluster)
    names = {one.producer_id: one.transactional_id for one in transactions.listed}
    data = {
        "topic": state,
        "partition": partition,
        "rows": [
            GapRow(row)
            if isinstance(row, Gap)
            else _message_row(row, shown_format, names.get(row.producer_id), name if state.is_internal else "")
            for row in page.rows
        ],
        "first_offset": first,
        "next_offset": page.next_offset,
        "earlier_offset": max(start, first - ROWS) if first > start else None,
        "looked_at": page.looked_at,
        "isolation": isolation,
        "contains": contains,
        "time_text": time_text,
        "format": shown_format if shown_format in FORMATS else "text",
        "formats": FORMATS,
        "rows_per_page": ROWS,
    }
    return Page("messages.html", f"Messages of {name}", data, menu="topics")


def _message_row(row: ShownRecord, shown_format: str, transactional_id: str | None, internal: str) -> MessageRow:
    record = row.record
    if record is None:
        return MessageRow(row, None, None, 0, False, (), transactional_id)
    key, value = record.key, record.value
    texts = decoded(internal, key, value) if internal and shown_format != "hex" else None
    key_text, value_text = texts or (in_format(key, shown_format), in_format(value, shown_format))
    headers = tuple((name, in_format(content, "text") or "null") for name, content in record.headers)
    is_cut = value_text is not None and len(value_text) > LONGEST_SHOWN
    return MessageRow(
        row,
        key_text,
        value_text[:LONGEST_SHOWN] if value_text is not None else None,
        len(value or b""),
        is_cut,
        headers,
        transactional_id,
    )


def in_format(content: bytes | None, shown_format: str) -> str | None:
    """Return bytes as text, JSON in lines, or hex. Bytes that are no text become hex: nothing is guessed."""
    if content is None:
        return None
    if shown_format == "hex":
        return content.hex(" ")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.hex(" ")
    if shown_format == "json":
        try:
            return json.dumps(parse(text), indent=2, ensure_ascii=False)
        except JsonError:
            return text
    return text


@change("produce-record")
async def produce_record(visit: Visit, form: Form) -> Change:
    name = field_of(form, "topic", "the topic")
    index = whole_number(form.get("partition", ""), "the partition", 0, 2**31 - 1)
    state = await read_topic(visit, name)
    partition = next((one for one in state.partitions if one.index == index), None)
    if partition is None:
        raise NotFoundError(f"{name} has no partition {index}")
    key = form.get("key") or None
    value = None if form.get("null_value") == "yes" else form.get("value", "")
    content = None if value is None else value.replace("\r\n", "\n").encode()
    if content is not None and len(content) > LARGEST_VALUE:
        raise BadFormError(f"a value may have at most {LARGEST_VALUE:,} bytes here")

    async def perform() -> str:
        offset = await produce(
            visit.cluster, name, index, partition.leader, None if key is None else key.encode(), content
        )
        return f"The record is at offset {offset:,} of {partition.name}."

    shown = "null" if value is None else (value if len(value) <= 300 else value[:300] + "…")
    effects = [
        f"One record is written to {partition.name}, outside of transactions.",
        f"Key: {key or 'null'}",
        f"Value: {shown}",
    ]
    back = with_query(path("topics", name, "messages"), partition=index)
    size = "null" if content is None else f"{len(content)} bytes"
    return Change(
        "Produce a record", name, effects, perform, back, back, is_dangerous=False, details=f"{partition.name}, {size}"
    )
