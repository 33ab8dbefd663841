"""The live tail of a topic: a page that asks for the records since its last answer, again and again.

The server keeps nothing of it: the positions are in the address. Each answer is bounded, and names how many offsets it
has skipped. It ends with the tab, with the session, and after LONGEST_MINUTES.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fencepost.console.positions import Positions, word_of
from fencepost.console.reading.scan import Budget, Scan
from fencepost.console.record_filters import OPERATORS
from fencepost.console.values import FORMATS
from fencepost.console.web.leaving import watching
from fencepost.console.web.pages.records import data_of, rows_of
from fencepost.console.web.record_queries import STANDS, Query, Reading, begin, first_hits, query_of
from fencepost.console.web.visit import BadFormError, Page, Visit, with_query

ROWS: Final = 50
MOST_NEW_ROWS: Final = 100
MOST_LOOKED_AT: Final = 5_000
MOST_BYTES: Final = 8 << 20
LONGEST_S: Final = 2.0
LONGEST_SHOWN: Final = 1_000
LONGEST_MINUTES: Final = 30


async def tail(visit: Visit) -> Page:
    """The newest records; with `new=yes` only those since `at`."""
    name = visit.request.path_params["topic"]
    query = replace(query_of(visit.parameters), is_newest_first=True, from_offset=None)
    only_new = visit.parameter("new") == "yes" and query.at is not None
    now_s = int(time.time())
    since_s = visit.number("since", now_s)
    has_ended = not 0 <= now_s - since_s < LONGEST_MINUTES * 60 or visit.parameter("stop") == "yes"
    async with watching(visit.request) as is_gone:
        budget = Budget(MOST_LOOKED_AT, MOST_BYTES, LONGEST_S, is_gone)
        reading, notes = await _begin(visit, name, query, budget, only_new=only_new)
        scan = reading.scan(visit.cluster)
        hits = await first_hits(visit.values, name, reading.query, scan, MOST_NEW_ROWS if only_new else ROWS)
        rows = await rows_of(visit, hits, LONGEST_SHOWN)
    seen = query.at.offsets if query.at is not None else reading.ends
    skipped = sum(max(0, position - seen.get(index, 0)) for index, position in scan.positions.items())
    at = word_of(Positions(reading.topic.topic_id, _seen_now(reading, scan, seen)))
    common = data_of(visit, reading, scan)
    kept = {key: value for key, value in common["kept"].items() if key not in ("order", "from")}
    data = {
        **common,
        "rows": rows,
        "skipped": skipped if query.at is not None else 0,
        "notes": notes,
        "next_address": with_query("", **kept, since=since_s, at=at),
        "has_ended": has_ended,
        "seconds": 5,
        "minutes": LONGEST_MINUTES,
        "kept": kept,
        "formats": FORMATS,
        "operators": OPERATORS,
        "stands_of": list(STANDS),
    }
    return Page("tail.html", f"Tail of {name}", data, menu="topics")


async def _begin(visit: Visit, name: str, query: Query, budget: Budget, *, only_new: bool) -> tuple[Reading, list[str]]:
    """Find the range to read, with notes on the topic's fate since the last answer."""
    at = query.at
    reading = await begin(visit.cluster, name, replace(query, at=None), budget)
    if at is None:
        return reading, []
    if not at.belong_to(reading.topic.topic_id):
        raise BadFormError(f"{name} was deleted and made again: the tail of the topic that was there has ended")
    notes, begins, deleted = [], dict(reading.begins), 0
    for index, offset in at.offsets.items():
        if index not in begins:
            continue
        deleted += max(0, begins[index] - offset)
        if offset > reading.ends[index]:
            notes.append(f"The log of {name}-{index} was cut from {offset:,} to {reading.ends[index]:,}.")
        elif only_new:
            begins[index] = max(begins[index], offset)
    if deleted:
        notes.append(f"Retention has deleted {deleted:,} offsets that were not shown.")
    return replace(reading, begins=begins), notes


def _seen_now(reading: Reading, scan: Scan, seen: Mapping[int, int]) -> dict[int, int]:
    """The positions for the next answer: the ends, but for partitions that could not be read."""
    failed = {index: seen[index] for index in seen if index in scan.failed or index not in reading.ends}
    return {**reading.ends, **failed}
