"""A history may be from anywhere: each odd line is refused with its number, or read, and none ends the checker."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.history.checker import check_history
from fencepost.history.reader import MalformedHistoryError
from tests.support.odd_json import odd_json, odd_object

BEGUN: tuple[dict[str, Any], ...] = (
    {"operation": "start", "type": "ok", "isolation_level": "read_committed", "idempotent": True, "acks": -1},
    {"operation": "begin", "type": "ok"},
    {"operation": "send", "type": "invoke", "call": 1, "topic": "t", "partition": 0, "value": "a", "inputs": []},
    {"operation": "send", "type": "ok", "call": 1, "partition": 0, "offset": 4},
    {"operation": "poll", "type": "ok", "records": [["t", 0, 4, "a"]], "positions": [["t", 0, 5]]},
    {"operation": "commit_offsets", "type": "invoke", "call": 2, "group_id": "g", "offsets": [["t", 0, 5]]},
    {"operation": "commit_offsets", "type": "ok", "call": 2},
    {"operation": "final_read", "type": "invoke", "call": 3, "ranges": [["t", 0, 0, 5]]},
    {"operation": "final_read", "type": "ok", "call": 3, "records": [["t", 0, 4, "a"]]},
    {"operation": "final_offsets", "type": "invoke", "call": 4, "group_id": "g"},
    {"operation": "final_offsets", "type": "ok", "call": 4, "offsets": [["t", 0, 5]]},
    {"operation": "commit", "type": "invoke", "call": 5},
    {"operation": "commit", "type": "ok", "call": 5},
    {"operation": "topic", "type": "ok", "topic": "t", "compacted": True},
    {"operation": "assign", "type": "ok", "partitions": [["t", 0, 0]]},
    {"operation": "seek", "type": "ok", "topic": "t", "partition": 0, "offset": 0},
)
USUAL = [{"time_ms": 1, "client": "c", **fields} for fields in BEGUN]


def line_of(index: int) -> st.SearchStrategy[tuple[int, bytes]]:
    return st.tuples(st.just(index), odd_object(USUAL[index]) | odd_json())


@settings(max_examples=300)
@given(st.sampled_from(range(len(USUAL))).flatmap(line_of))
@example((3, b"[" * 100_000))
@example((3, b'{"time_ms":1' + b"0" * 5_000 + b"}"))
def test_one_odd_line_is_read_or_refused_with_its_number(odd: tuple[int, bytes]) -> None:
    index, text = odd
    lines = [json.dumps(fields).encode() + b"\n" for fields in USUAL]
    lines[index] = text + b"\n"
    number = index + 1
    try:
        check_history(lines)
    except MalformedHistoryError as error:
        number = error.line
        assert len(error.reason) < 400  # noqa: PT017  # most lines are refused, some are not
    assert number >= index + 1
