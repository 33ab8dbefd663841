"""The table of authentications, cell by cell, against what it has to say in words."""

from __future__ import annotations

import pytest

from fencepost.broker.security.sasl.authentication_state import TABLE, Reply, Step
from fencepost.broker.security.sasl.authentication_state import AuthenticationEvent as Event
from fencepost.broker.security.sasl.authentication_state import AuthenticationState as State

INITIAL, HANDSHAKE, TOKENS, RAW, OTHER, AUTHENTICATED, EXPIRED, ENDED = State

# As observed of Kafka 4.4: one line for each event, one column for each state. `.` closes without a reply.
# fmt: off
EXPECTED = """
                       INITIAL     HANDSHAKE   TOKENS      RAW         OTHER       AUTHENTICATED EXPIRED     ENDED
API_VERSIONS           SERVE>H     .           ILLEGAL     .           ILLEGAL     SERVE         .           .
REFUSED_API_VERSIONS   SERVE       .           ILLEGAL     .           ILLEGAL     SERVE         .           .
HANDSHAKE              ACCEPT>T    ACCEPT>T    ILLEGAL     .           ILLEGAL     ACCEPT>T      ACCEPT>T    .
RAW_HANDSHAKE          ACCEPT>R    ACCEPT>R    ILLEGAL     .           ILLEGAL     ACCEPT>R      ACCEPT>R    .
UNKNOWN_MECHANISM      UNKNOWN     UNKNOWN     ILLEGAL     .           ILLEGAL     LATER         LATER       .
OTHER_MECHANISM        .           .           ILLEGAL     .           ILLEGAL     ACCEPT>O      ACCEPT>O    .
UNWANTED_HANDSHAKE     .           .           ILLEGAL     .           ILLEGAL     ILLEGAL_OPEN  .           .
TOKEN                  .           .           EVALUATE    EVALUATE    LATER       ILLEGAL_OPEN  .           .
REQUEST                .           .           ILLEGAL     .           ILLEGAL     SERVE         .           .
CHALLENGED             .           .           CHALLENGE   CHALLENGE   ILLEGAL     SERVE         .           .
IDENTIFIED             .           .           SUCCESS>A   SUCCESS>A   ILLEGAL     SERVE         .           .
REFUSED                .           .           FAILURE     FAILURE     ILLEGAL     SERVE         .           .
OTHER_PRINCIPAL        .           .           FAILURE     FAILURE     ILLEGAL     SERVE         .           .
EXPIRY                 NOTHING     NOTHING     NOTHING     NOTHING     NOTHING     NOTHING>E     NOTHING     NOTHING
OVERDUE                .           .           .           .           .           NOTHING       NOTHING     NOTHING
"""
# fmt: on
ENDS = {
    ".": Reply.CLOSE,
    "ILLEGAL": Reply.ILLEGAL_STATE,
    "UNKNOWN": Reply.UNSUPPORTED_MECHANISM,
    "LATER": Reply.CLOSE_LATER,
    "FAILURE": Reply.FAILURE,
}
GOES_ON = {reply.name: reply for reply in Reply if reply not in ENDS.values()} | {
    "ILLEGAL_OPEN": Reply.ILLEGAL_STATE_OPEN
}
LETTERS = {"H": HANDSHAKE, "T": TOKENS, "R": RAW, "O": OTHER, "A": AUTHENTICATED, "E": EXPIRED}


def expected_steps() -> dict[tuple[State, Event], Step]:
    rows = [line.split() for line in EXPECTED.strip().splitlines()[1:]]
    steps = {}
    for name, *cells in rows:
        for state, cell in zip(State, cells, strict=True):
            word, _, letter = cell.partition(">")
            if word in ENDS:
                steps[state, Event[name]] = Step(ENDS[word], ENDED)
            else:
                steps[state, Event[name]] = Step(GOES_ON[word], LETTERS[letter] if letter else state)
    return steps


STEPS = expected_steps()


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_every_cell_is_what_kafka_does(state: State, event: Event) -> None:
    assert TABLE[state, event] == STEPS[state, event]


def test_there_is_a_cell_for_every_event_in_every_state() -> None:
    assert set(TABLE) == {(state, event) for state in State for event in Event}


def test_only_a_mechanism_that_knows_the_client_makes_it_served() -> None:
    openings = {
        (state, event)
        for (state, event), step in TABLE.items()
        if step.state is AUTHENTICATED and state is not AUTHENTICATED
    }
    assert openings == {(TOKENS, Event.IDENTIFIED), (RAW, Event.IDENTIFIED)}


def test_nothing_is_served_before_but_the_versions_of_requests() -> None:
    served = {key for key, step in TABLE.items() if step.reply is Reply.SERVE and key[0] is not AUTHENTICATED}
    assert served == {(INITIAL, Event.API_VERSIONS), (INITIAL, Event.REFUSED_API_VERSIONS)}


def test_nothing_follows_the_end() -> None:
    assert {step.state for (state, _), step in TABLE.items() if state is ENDED} == {ENDED}
