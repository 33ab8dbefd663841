"""What operators read: each record that is worth a line has one, with the remedy where there is one."""

from __future__ import annotations

import dataclasses

import pytest

from fencepost.check_back.case import Case, Decider, Decision, Outcome, State
from fencepost.check_back.log_lines import Level, line_of
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import (
    Entry,
    asked_entry,
    case_entry,
    case_tombstone,
    decided_entry,
    ended_entry,
    resolver_entry,
)
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase.tokens import Token

SETTINGS = ResolverSettings("orders", ("order-*",), "http", {"url": "https://user:secret@host/"})
CASE = Case(Question(Token(7, 0, "order-1"), 1_000, (("t", 0),)), "orders", State.ASKING, 2_000)
DECIDED = dataclasses.replace(CASE, decision=Decision(Outcome.COMMIT, Decider.RESOLVER))


@pytest.mark.parametrize(
    ("entry", "level", "event"),
    [
        (resolver_entry(SETTINGS, asked=True, up=True, reason=None, since_ms=5), Level.INFO, "resolver_reachable"),
        (resolver_entry(SETTINGS, asked=True, up=False, reason="x", since_ms=5), Level.WARNING, "resolver_unreachable"),
        (asked_entry(CASE, Answer.UNKNOWN, None, latency_ms=3, now_ms=5), Level.DEBUG, "source_asked"),
        (decided_entry(CASE, "park", Decider.EXHAUSTED, 5), Level.WARNING, "transaction_parked"),
        (decided_entry(DECIDED, "commit", Decider.RESOLVER, 5), Level.INFO, "transaction_decided"),
        (ended_entry(DECIDED, "commit", Decider.RESOLVER, 5), Level.INFO, "transaction_in_doubt_ended"),
        (ended_entry(CASE, "abort", Decider.TIME_OUT, 5), Level.INFO, "transaction_in_doubt_ended"),
        (ended_entry(DECIDED, "abort", Decider.CLIENT, 5), Level.ERROR, "outcome_contradicts_decision"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_has_a_line(entry: Entry, level: Level, event: str) -> None:
    line = line_of(entry)
    assert line is not None
    assert (line.level, line.event) == (level, event)
    assert "secret" not in str(line)


@pytest.mark.parametrize(
    "entry",
    [
        case_entry(CASE),
        case_tombstone(CASE.key),
        resolver_entry(SETTINGS, asked=False, up=True, reason=None, since_ms=5),
    ],
    ids=["state", "tombstone", "resolver at the start"],
)
def test_what_is_kept_for_the_service_alone_has_none(entry: Entry) -> None:
    assert line_of(entry) is None


def test_no_option_of_a_resolver_is_written_to_the_topic() -> None:
    assert "secret" not in str(resolver_entry(SETTINGS, asked=True, up=False, reason="x", since_ms=5))
    assert "secret" not in repr(SETTINGS)
