"""Which topic may decide which transactions of Spark's sinks, and what a decision lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.check_back.decided import DecisionTopics, batch_of, done_id, is_job, sink_of
from fencepost.protocol.checked_json import JsonError
from fencepost.spark.decisions import Batch, Decision, done_value, partial_value
from fencepost.spark.names import default_decision_topic, is_one_off, one_off_sink, task_id
from fencepost.two_phase import Token

JOB = one_off_sink("8cd0ef86-096d-4b7d-8237-fcb86ebd341a")


@pytest.mark.parametrize(
    "sink", ["squares", "a", "a-deadbeef-0-1", "8cd0ef86-096d-4b7d-8237-fcb86ebd341a", JOB, "x" * 200]
)
def test_the_ids_of_a_sinks_tasks_are_its_own(sink: str) -> None:
    assert sink_of(task_id(sink, "3f9a1c02", 1234, 99_999)) == sink


@pytest.mark.parametrize(
    "name",
    [
        "",
        "squares-driver",
        "squares-3f9a1c02-0",
        "squares-3F9A1C02-0-1",
        "-3f9a1c02-0-1",
        "a b-3f9a1c02-0-1",
        "squares-3f9a1c02-0-1x",
        "squares-3f9a1c02-0-\u0663",
        "x" * 300 + "-3f9a1c02-0-1",
        "a\n-3f9a1c02-0-1",
    ],
)
def test_other_ids_are_of_no_sink(name: str) -> None:
    assert sink_of(name) is None


def test_jobs_and_topics_are_named_as_the_sink_names_them() -> None:
    assert (is_job(JOB), is_job("batch-1")) == (is_one_off(JOB), is_one_off("batch-1")) == (True, False)
    topics = DecisionTopics(["fencepost-sink-*"])
    assert topics.own("squares") == (default_decision_topic("squares"),)
    assert topics.own(JOB) == (default_decision_topic("batch"),)


def test_a_topic_of_the_default_glob_decides_about_the_sink_that_it_is_named_after_and_no_other() -> None:
    topics = DecisionTopics(["fencepost-sink-*"])
    assert topics.may_decide("fencepost-sink-squares", "squares")
    assert topics.may_decide("fencepost-sink-batch", JOB)
    assert not topics.may_decide("fencepost-sink-evil", "squares")
    assert not topics.may_decide("fencepost-sink-batch", "squares")
    assert not topics.may_decide("squares", "squares")
    assert topics.is_one("fencepost-sink-evil")
    assert not topics.is_one("decisions")


def test_a_topic_that_the_operator_names_decides_about_all_sinks() -> None:
    topics = DecisionTopics(["fencepost-sink-shared", "team-[ab]-decisions"])
    assert topics.may_decide("fencepost-sink-shared", "squares")
    assert topics.may_decide("team-a-decisions", "squares")
    assert not topics.may_decide("team-c-decisions", "squares")
    assert not topics.may_decide("fencepost-sink-squares", "squares")
    assert (topics.names, topics.has_patterns) == (("fencepost-sink-shared",), True)
    assert not DecisionTopics([]).is_one("fencepost-sink-squares")


def test_a_decision_of_the_sink_is_understood() -> None:
    tokens = tuple(Token(number, 0, task_id("squares", "3f9a1c02", number, number)) for number in range(3))
    batch = batch_of("squares", Decision("d1", Batch("q", 7), tokens, 30).value())
    assert batch.tokens == tuple(map(str, tokens))
    assert (batch.id, batch.batch, batch.query, batch.rows, batch.strange) == ("d1", "7", "q", 30, 0)
    assert not batch.is_job
    assert batch_of(JOB, Decision("d2", Batch(None, "uuid"), (), 0).value()).is_job


def test_tokens_of_another_sinks_tasks_are_counted_and_not_honoured() -> None:
    own = "1:0:squares-3f9a1c02-0-0"
    value = json.dumps({"tokens": [own, own, "2:0:cubes-3f9a1c02-0-0", "nonsense", "3:0:squares-driver"]}).encode()
    batch = batch_of("squares", value)
    assert (batch.tokens, batch.strange) == ((own,), 3)


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b'{"tokens": 1}', b'{"tokens": [1]}', b"[" * 100_000])
def test_nonsense_is_no_decision(value: bytes) -> None:
    with pytest.raises(JsonError):
        batch_of("squares", value)


@pytest.mark.parametrize("odd", [{"batch": [], "rows": True, "query": 1, "id": {}}, {"batch": 1.5, "rows": "1"}])
def test_odd_fields_beside_the_tokens_are_left_out(odd: dict[str, Any]) -> None:
    batch = batch_of("squares", json.dumps({"tokens": ["1:0:squares-3f9a1c02-0-0"], **odd}).encode())
    assert batch[:1] + batch[3:] == ("squares", None, None, None, None)


def test_a_done_mark_names_its_decision_and_a_partial_one_does_not() -> None:
    decision = Decision("d1", Batch("q", 7), (), 0)
    assert done_id(done_value(decision, complete_ms=1, swept=0)) == "d1"
    assert done_id(partial_value(decision, ["1:0:x"])) is None
    assert done_id(b"nonsense") is None
