"""Messages: the records of a topic with a mark each, one record in full, and a form to produce one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from fencepost.client.errors import ClusterError
from fencepost.client.producing import produce
from fencepost.console.positions import Positions, word_of
from fencepost.console.reading.scan import Budget, Scan
from fencepost.console.reading.transactions import list_transactions
from fencepost.console.record_filters import OPERATORS
from fencepost.console.record_marks import Gap, ShownRecord
from fencepost.console.values import FORMATS
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.leaving import watching
from fencepost.console.web.pages.topic_changes import identity
from fencepost.console.web.pages.topics import read_topic
from fencepost.console.web.record_queries import STANDS, Hit, Reading, begin, first_hits, query_of
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path, whole_number, with_query

ROWS: Final = 50
MOST_LOOKED_AT: Final = 50_000
MOST_BYTES: Final = 64 << 20
LONGEST_S: Final = 5.0
LONGEST_SHOWN: Final = 4_000
"""Characters of a value in a list of records; the page of one record shows all of it, up to LONGEST_IN_FULL."""
LONGEST_KEY: Final = 500
MOST_HEADERS: Final = 20
LONGEST_IN_FULL: Final = 2_000_000
LARGEST_VALUE: Final = 900_000
OFFLINE_NAMED: Final = 10


@dataclass(frozen=True)
class MessageRow:
    """A record as the page shows it. key, value: text in the chosen format; None for null. row: without its content.

    schema: the one of the value, as people know it. note: why the value was not read, or that a part of it is hidden.
    """

    partition: int
    row: ShownRecord
    key: str | None
    value: str | None
    value_bytes: int
    is_cut: bool
    headers: tuple[tuple[str, str], ...]
    transactional_id: str | None
    is_marker: bool
    schema: str = ""
    note: str = ""
    key_schema: str = ""
    key_note: str = ""


@dataclass(frozen=True)
class GapRow:
    """Offsets without a record."""

    gap: Gap


@dataclass(frozen=True)
class Cost:
    """The cost of a reading. ended: the reason: "" for a full page, "complete", or the bound that was reached."""

    records: int
    read_bytes: int
    seconds: float
    ended: str


async def messages(visit: Visit) -> Page:
    name = visit.request.path_params["topic"]
    query = query_of(visit.parameters)
    async with watching(visit.request) as is_gone:
        reading = await begin(visit.cluster, name, query, Budget(MOST_LOOKED_AT, MOST_BYTES, LONGEST_S, is_gone))
        scan = reading.scan(visit.cluster)
        hits = await first_hits(visit.values, name, query, scan, ROWS)
        rows = await rows_of(visit, hits)
    has_gaps = len(reading.partitions) == 1 and not query.is_filtered
    data = {
        **data_of(visit, reading, scan),
        "rows": with_gap_rows(rows, reading) if has_gaps else rows,
        "next_at": word_of(Positions(reading.topic.topic_id, scan.positions)) if scan.has_more else None,
        "formats": FORMATS,
        "operators": OPERATORS,
        "stands_of": list(STANDS),
        "rows_per_page": ROWS,
    }
    return Page("messages.html", f"Messages of {name}", data, menu="topics")


def data_of(visit: Visit, reading: Reading, scan: Scan) -> dict[str, Any]:
    """The data that pages of records have in common."""
    query, budget = reading.query, reading.budget
    kept = {key: visit.parameter(key) for key in (*GIVEN, "stands", "format") if visit.parameter(key)}
    kept["order"] = "newest" if query.is_newest_first else "oldest"
    failed = [f"{reading.topic.name}-{index}: {reason}" for index, reason in sorted(scan.failed.items())]
    return {
        "topic": reading.topic,
        "single": reading.partitions[0] if len(reading.partitions) == 1 else None,
        "partition_count": len(reading.partitions),
        "range_start": sum(reading.begins.values()),
        "range_offsets": reading.offsets,
        "offline": [f"{one.name}: {one.error}" for one in reading.offline[:OFFLINE_NAMED]],
        "offline_count": len(reading.offline),
        "failed": failed[:OFFLINE_NAMED],
        "left_out": reading.left_out,
        "deleted": scan.deleted,
        "cost": Cost(budget.records, budget.read_bytes, round(budget.seconds, 3), scan.ended),
        "is_filtered": query.is_filtered,
        "is_continued": query.at is not None,
        "given": {key: visit.parameter(key) for key in GIVEN},
        "is_newest_first": query.is_newest_first,
        "stands": query.stands,
        "format": query.shown_format,
        "kept": kept,
    }


GIVEN: Final = (
    "partition",
    "from",
    "time",
    "until",
    "contains",
    "key",
    "key_is",
    "header",
    "header_value",
    "field",
    "op",
    "operand",
)


async def rows_of(visit: Visit, hits: Sequence[Hit], longest: int = LONGEST_SHOWN) -> list[MessageRow]:
    """Rows of a page. Each has its producer's transactional id, if this user has the right to describe it."""
    producer_ids = sorted({one.found.row.producer_id for one in hits if one.found.row.producer_id >= 0})
    names: dict[int, str] = {}
    if producer_ids:
        listed = await list_transactions(visit.cluster, producer_ids=producer_ids)
        names = {one.producer_id: one.transactional_id for one in listed.listed}
    return [_message_row(one, names.get(one.found.row.producer_id), longest) for one in hits]


def _message_row(hit: Hit, transactional_id: str | None, longest: int) -> MessageRow:
    row, index = hit.found.row._replace(record=None), hit.found.partition.index
    shown = hit.shown
    if shown is None:
        return MessageRow(index, row, None, None, 0, False, (), transactional_id, is_marker=True)
    text = shown.value.text
    return MessageRow(
        index,
        row,
        _cut(shown.key.text, max(LONGEST_KEY, longest // 4)),
        None if text is None else text[:longest],
        len(shown.record.value or b""),
        text is not None and len(text) > longest,
        tuple(
            (_cut(name, LONGEST_KEY) or "", _cut(part.text, longest) or "null")
            for name, part in shown.headers[:MOST_HEADERS]
        ),
        transactional_id,
        is_marker=False,
        schema=shown.value.schema,
        note=shown.value.note,
        key_schema=shown.key.schema,
        key_note=shown.key.note,
    )


def _cut(text: str | None, longest: int) -> str | None:
    return text if text is None or len(text) <= longest else text[:longest] + "…"


def with_gap_rows(rows: Sequence[MessageRow], reading: Reading) -> list[MessageRow | GapRow]:
    """Put a row wherever offsets are missing between two records of the one partition."""
    found: list[MessageRow | GapRow] = []
    before: int | None = None
    for one in rows:
        offset = one.row.offset
        if before is not None and abs(offset - before) > 1:
            found.append(GapRow(Gap(min(offset, before) + 1, max(offset, before) - 1)))
        found.append(one)
        before = offset
    if not reading.query.is_newest_first and rows:
        start = next(iter(reading.begins.values()))
        if rows[0].row.offset > start:
            found.insert(0, GapRow(Gap(start, rows[0].row.offset - 1)))
    return found


async def record(visit: Visit) -> Page | Response:
    """One record in full. `raw=yes` gives the bytes of its value, if nothing of it is hidden."""
    name, index = visit.place()
    offset = whole_number(visit.request.path_params["offset"], "the offset", 0)
    query = replace(query_of({"format": visit.parameter("format", "json")}), ranges=((index, index),))
    query = replace(query, is_newest_first=False, from_offset=offset)
    reading = await begin(visit.cluster, name, query, Budget(RECORDS_OF_ONE, MOST_BYTES, LONGEST_S))
    scan = reading.scan(visit.cluster)
    hits = await first_hits(visit.values, name, query, scan, 1)
    if scan.failed:
        raise ClusterError(next(iter(scan.failed.values())))
    if not hits or hits[0].found.row.offset != offset:
        raise NotFoundError(f"{name}-{index} has no record at offset {offset:,}: it was deleted, or never there")
    if visit.parameter("raw") == "yes" and hits[0].shown is not None:
        headers = {"Content-Disposition": f'attachment; filename="value-{index}-{offset}"'}
        return Response(hits[0].shown.record.value or b"", 200, headers, media_type="application/octet-stream")
    [row] = await rows_of(visit, hits, LONGEST_IN_FULL)
    data = {"topic": reading.topic, "one": row, "format": query.shown_format, "formats": FORMATS}
    return Page("record.html", f"{name}-{index} at {offset:,}", data, menu="topics")


RECORDS_OF_ONE: Final = 100_000
"""A batch may have that many in front of the one."""


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
        "Produce a record",
        name,
        effects,
        perform,
        back,
        back,
        is_dangerous=False,
        details=f"{partition.name}, {size}",
        world=identity(state),
        values=[("record", "not there", f"{size} in {partition.name}")],
    )
