"""Stories of brokers on an engine again and again, each time with one thing more that goes wrong: with the Nth request
to the database or the object store.

The broker that makes the request dies before it, once it is sent, or with the answer, and comes back before or after
the end of its lease; or it freezes there until others have taken over, and goes on; or its connection breaks before or
after the effect. Clients ask again, of whatever broker leads by then. What must hold whatever happens is checked, not
what the story expects. `pytest tests/scenarios -m long` does all points; otherwise a few are taken, always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.scenarios.runner.engine_point import EnginePoint
from tests.scenarios.runner.performance import perform_transcript
from tests.scenarios.runner.transcript import Transcript, parse_transcript
from tests.simulation.engine_requests import EngineRequest, Trouble
from tests.simulation.invariants import engine_bugs

FOLDER = Path(__file__).parent / "machines"
STORY = FOLDER / "life_of_a_cluster.txt"
AWAY_S = (0.3, 6.0)
"""Before the end of a lease of 3 s, and after it."""
OF_READING = (Trouble.DIES_AFTER, Trouble.FREEZES_AFTER, Trouble.NOT_DONE)
"""With a request that changes nothing, all else comes to the same."""
QUICK_COUNT = 2
PARTS = 8
"""The whole sweep is split, as tests have a time limit and may run side by side."""


def all_points(requests: Sequence[EngineRequest]) -> list[EnginePoint]:
    return [
        EnginePoint(request.number, trouble, AWAY_S[request.number % len(AWAY_S)])
        for request in requests
        for trouble in (OF_READING if request.is_reading else Trouble)
    ]


def some_points(requests: Sequence[EngineRequest], trouble: Trouble) -> list[EnginePoint]:
    """A few of those at which something changes; each trouble has others."""
    points = all_points([request for request in requests if not request.is_reading])
    having = [point for point in points if point.trouble is trouble]
    first = list(Trouble).index(trouble)
    return having[first :: len(having) // QUICK_COUNT]


def findings(transcript: Transcript, points: Iterable[EnginePoint]) -> list[str]:
    """What did not hold, with the point that showed it."""
    found = []
    for point in points:
        try:
            what = perform_transcript(transcript, point).findings
        except Exception as error:  # noqa: BLE001  # the other points are to be tried as well
            found.append(f"{point}: {type(error).__name__}: {error}")
        else:
            found += [f"{point}: {each}" for each in what]
    return found


@pytest.fixture(scope="module")
def story() -> Transcript:
    return parse_transcript(STORY.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def requests(story: Transcript) -> list[EngineRequest]:
    """What its brokers ask of the engine when nothing goes wrong."""
    return perform_transcript(story).engine_requests


def test_the_story_has_every_kind_of_change(requests: Sequence[EngineRequest]) -> None:
    kinds = {request.kind for request in requests if not request.is_reading}
    of_rows = {"commit", "replace", "raise_log_starts", "move", "find", "start", "renew", "add_orphans"}
    of_metadata = {"create_topic", "delete_topic", "compare_and_set"}
    assert kinds == of_rows | of_metadata | {"put"}


@pytest.mark.parametrize("trouble", Trouble)
def test_trouble_with_a_request_to_an_engine_breaks_nothing(
    story: Transcript, requests: Sequence[EngineRequest], trouble: Trouble
) -> None:
    assert not findings(story, some_points(requests, trouble))


def test_a_flush_that_counts_as_committed_when_its_connection_breaks_is_found(
    story: Transcript, requests: Sequence[EngineRequest]
) -> None:
    flushes = [request for request in requests if request.kind == "commit"]
    point = EnginePoint(flushes[-1].number, Trouble.NOT_DONE, 0.0)
    with engine_bugs.a_flush_without_an_answer_counts_as_committed():
        assert 42 in {violation.invariant for violation in perform_transcript(story, point).violations}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_trouble_with_each_request_to_an_engine_breaks_nothing(
    story: Transcript, requests: Sequence[EngineRequest], part: int
) -> None:
    assert not findings(story, all_points(requests)[part::PARTS])
