"""Lines that are no operations of a history are refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.history.checker import check_history
from fencepost.history.reader import MalformedHistoryError


def line(operation: str, outcome: str, **fields: Any) -> bytes:
    return json.dumps({"time_ms": 1, "client": "c", "operation": operation, "type": outcome, **fields}).encode() + b"\n"


def send(value: str, call: int) -> bytes:
    return line("send", "invoke", call=call, topic="t", partition=0, value=value)


FINAL_READ = [
    line("final_read", "invoke", call=9, ranges=[["t", 0, 0, 1]]),
    line("final_read", "ok", call=9, records=[]),
]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"[1]\n"], "line 1: not a JSON object"),
        ([b'{"time_ms":1}\n'], "line 1: the field 'client' is missing"),
        ([line("begin", "done")], "type must be invoke, ok, fail or unknown, not 'done'"),
        ([line("frobnicate", "ok")], "there is no operation 'frobnicate'"),
        ([line("frobnicate", "invoke", call=1)], "there is no operation 'frobnicate' that is invoked"),
        ([line("start", "ok", isolation_level="serializable")], "isolation_level must be one of"),
        ([line("send", "ok", call=1)], 'client "c" has no send under way with call 1'),
        ([line("send", "ok")], "the field 'call' is missing"),
        ([send("a", 1), send("b", 1)], "call 1 of"),
        ([send("a", 1), send("a", 2)], "the value 'a' was sent in line 1 already"),
        ([send("a", 1), line("commit", "ok", call=1)], "no commit under way with call 1"),
        ([send("a", 1), line("send", "ok", call=1, partition=1)], "was sent to t-0 and acknowledged in t-1"),
        ([line("send", "invoke", call=1, topic="t", value="a"), line("send", "ok", call=1)], "'partition' is missing"),
        ([line("send", "invoke", call=1, topic="t", partition=[], value="a")], "a partition an integer"),
        ([line("send", "invoke", call=1, topic="t", value=3)], "value must be a string, not 3"),
        ([line("send", "invoke", call=1, topic="t", value="a", inputs="i")], "inputs must be a list of strings"),
        ([line("begin", "ok"), line("begin", "ok")], "has not ended"),
        ([line("commit", "invoke", call=1)], "commit outside a transaction"),
        ([line("poll", "ok", records=[["t", 0, 1]])], "a record must be [topic, partition, offset, value]"),
        ([line("poll", "ok", records=7)], "records must be a list"),
        ([line("assign", "ok", partitions=[["t", 0]])], "partitions must be a list of [topic, partition, offset]"),
        ([line("final_read", "invoke", call=1, ranges=[["t", 0]])], "ranges must be a list of"),
        (
            [line("commit_offsets", "invoke", call=1, group_id="g", offsets=[["t", 0, None]])],
            "an offset to commit must be an integer",
        ),
        ([*FINAL_READ[:1], line("final_read", "ok", call=9, records=[["t", 1, 0, "a"]])], "outside the ranges"),
    ],
)
def test_a_file_that_is_no_history_is_refused_with_the_reason(lines: list[bytes], reason: str) -> None:
    with pytest.raises(MalformedHistoryError) as refused:
        check_history(lines)
    assert reason.removeprefix("client ") in str(refused.value)
    assert refused.value.line == len(lines)
