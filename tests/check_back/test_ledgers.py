"""A ledger has the latest decision of each sink that no mark ends."""

from __future__ import annotations

from fencepost.check_back.decided import DecisionTopics, batch_of
from fencepost.check_back.ledgers import Ledger
from fencepost.spark.decisions import Batch, Decision, done_value, partial_value
from fencepost.two_phase import Token

TOPICS = DecisionTopics(["fencepost-sink-*"])
TOKENS = tuple(Token(number, 0, f"squares-3f9a1c02-{number}-{number}") for number in range(6))
DECISION = Decision("d1", Batch("q", 7), TOKENS, 60)
BATCH = batch_of("squares", DECISION.value())
TIME_MS = 1_764_000_000_000


def ledger(*records: tuple[str, bytes | None]) -> Ledger:
    made = Ledger("fencepost-sink-squares")
    for key, value in records:
        made.take(key, value, TIME_MS, TOPICS)
    return made


def test_a_decision_is_undone_until_its_own_mark() -> None:
    assert ledger(("squares", DECISION.value())).batches == {"squares": BATCH}
    earlier = done_value(DECISION._replace(id="d0"), complete_ms=1, swept=0)
    assert ledger(("squares", DECISION.value()), ("squares/done", earlier)).batches == {"squares": BATCH}
    mark = done_value(DECISION, complete_ms=1, swept=0)
    done = ledger(("squares", DECISION.value()), ("squares/done", mark))
    assert (done.batches, done.done) == ({}, {"squares"})
    done.take("squares", DECISION._replace(id="d2").value(), TIME_MS, TOPICS)
    assert (done.batches["squares"].id, done.done) == ("d2", set())
    done.take("squares", None, TIME_MS, TOPICS)
    assert done.batches == {}


def test_a_partial_mark_and_nonsense_end_no_batch_and_a_decision_of_another_sink_is_left_out() -> None:
    found = ledger(
        ("squares", DECISION.value()),
        ("squares/done", partial_value(DECISION, [])),
        ("squares/done", b"nonsense"),
        ("squares/aborted", b"{}"),
        ("cubes", DECISION.value()),
        ("squares/owner", b"{}"),
    )
    assert (found.batches, found.unreadable) == ({"squares": BATCH}, {})
    found.take("squares", b"nonsense", TIME_MS, TOPICS)
    assert found.batches == {}
    assert "it is not JSON" in found.unreadable["squares"]
