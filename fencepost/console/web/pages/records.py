"""Messages: the records of a partition with a mark each, and a form to produce one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fencepost.client.errors import ClusterError
from fencepost.client.producing import produce
from fencepost.console import words
from fencepost.console.reading.records import offset_at_time, read_page
from fencepost.console.reading.topics import fill_offsets
from fencepost.console.reading.transactions import list_transactions
from fencepost.console.record_marks import Gap, ShownRecord
from fencepost.console.values import FORMATS, Shown
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.pages.topics import read_topic
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path, whole_number, with_query

ROWS: Final = 50
LONGEST_SHOWN: Final = 20_000
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
        "rows": await _rows(visit, name, page.rows, shown_format, names),
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


async def _rows(
    visit: Visit, topic: str, found: list[ShownRecord | Gap], shown_format: str, names: dict[int, str]
) -> list[MessageRow | GapRow]:
    records = [one.record for one in found if not isinstance(one, Gap) and one.record is not None]
    shown = iter(await visit.values.show(topic, records, shown_format))
    return [
        GapRow(one)
        if isinstance(one, Gap)
        else _message_row(one, None if one.record is None else next(shown), names.get(one.producer_id))
        for one in found
    ]


def _message_row(row: ShownRecord, shown: Shown | None, transactional_id: str | None) -> MessageRow:
    if shown is None:
        return MessageRow(row, None, None, 0, False, (), transactional_id)
    text = shown.value.text
    return MessageRow(
        row._replace(record=shown.record),
        shown.key.text,
        None if text is None else text[:LONGEST_SHOWN],
        len(shown.record.value or b""),
        text is not None and len(text) > LONGEST_SHOWN,
        tuple((name, "null" if part.text is None else part.text) for name, part in shown.headers),
        transactional_id,
    )


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
