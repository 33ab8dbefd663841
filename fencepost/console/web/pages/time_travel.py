"""Time-travel of a partition: the records that a read_committed reader saw at a time, and those it could have seen."""

from __future__ import annotations

from typing import Final

from fencepost.client.errors import ClusterError
from fencepost.console import words
from fencepost.console.reading.records import MOST_BATCHES, open_since, read_range
from fencepost.console.reading.topics import read_partition
from fencepost.console.time_travel import history_of
from fencepost.console.web.drawing import draw_time_travel
from fencepost.console.web.visit import BadFormError, Page, Visit

DEFAULT_OFFSETS: Final = 2_000
"""Without a range in the address, the view goes back this far from the end."""


async def time_travel(visit: Visit) -> Page:
    topic, index = visit.place()
    partition = await read_partition(visit.cluster, topic, index)
    if partition.error is not None:
        raise ClusterError(f"{partition.name} does not answer: {partition.error}")
    start, end = partition.start or 0, partition.high_watermark or 0
    first = max(start, min(end, visit.number("from", max(start, end - DEFAULT_OFFSETS))))
    last = max(first, min(end, visit.number("to", end)))
    found = await read_range(visit.cluster, partition, first, last)
    opened = await open_since(visit.cluster, partition)
    history = history_of(found.batches, first, begins_the_log=first <= start == 0, open_since=opened)
    time_text = visit.parameter("time").strip()
    chosen = history.steps[-1]
    if time_text:
        try:
            chosen = history.at_time(words.parse_clock(time_text))
        except ValueError as error:
            raise BadFormError(str(error)) from None
    elif visit.parameter("at").strip():
        chosen = history.at_offset(visit.number("at", history.to_offset))
    data = {
        "partition": partition,
        "history": history,
        "chosen": chosen,
        "holder": history.holding(chosen),
        "picture": draw_time_travel(history, chosen),
        "is_whole": found.is_whole,
        "most_batches": MOST_BATCHES,
        "from_offset": first,
        "to_offset": last,
        "time_text": time_text,
    }
    return Page("time_travel.html", f"Time-travel of {partition.name}", data, menu="topics")
