"""Every scenario again and again, each time with one fault more: at the Nth operation that it does to a disk.

What must hold whatever happens is checked, not what the scenario expects. `pytest tests/scenarios -m long` does all
points; otherwise a few of each scenario are taken, always the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.scenarios.runner.performance import perform_transcript
from tests.scenarios.runner.sweep_point import Mishap, Plant, SweepPoint
from tests.scenarios.runner.transcript import Transcript, parse_transcript

FOLDER = Path(__file__).parent
POINTS_PER_SCENARIO = 2


def all_points(transcript: Transcript) -> list[SweepPoint]:
    operation_count = perform_transcript(transcript).operation_count
    return [SweepPoint(number, mishap) for number in range(1, operation_count + 1) for mishap in Mishap]


def some_points(name: str, points: Sequence[SweepPoint]) -> Iterable[SweepPoint]:
    """A few, spread evenly; from where on depends on the name, so that together the scenarios meet all kinds."""
    stride = max(1, len(points) // POINTS_PER_SCENARIO)
    if stride % len(Mishap) == 0:
        stride += 1  # else it would be the same mishap each time
    return points[zlib.crc32(name.encode()) % stride :: stride]


def findings(transcript: Transcript, points: Iterable[SweepPoint]) -> list[str]:
    """What did not hold, with the point that showed it."""
    found = []
    for point in points:
        try:
            violations = perform_transcript(transcript, Plant(point)).violations
        except Exception as error:  # noqa: BLE001  # the other points are to be tried as well
            found.append(f"{point}: {type(error).__name__}: {error}")
        else:
            found += [f"{point}: {violation}" for violation in violations]
    return found


SCENARIOS = [
    pytest.param(path, id=str(path.relative_to(FOLDER).with_suffix("")))
    for path in sorted(FOLDER.rglob("*.txt"))
    if path.parent.name != "machines"  # theirs is `test_engine_sweep.py`
]


@pytest.mark.parametrize("path", SCENARIOS)
def test_a_fault_that_the_scenario_does_not_know_of_breaks_nothing(path: Path) -> None:
    transcript = parse_transcript(path.read_text(encoding="utf-8"))
    points = all_points(transcript)
    assert not findings(transcript, some_points(path.stem, points))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", SCENARIOS)
def test_a_fault_at_each_operation_breaks_nothing(path: Path) -> None:
    transcript = parse_transcript(path.read_text(encoding="utf-8"))
    assert not findings(transcript, all_points(transcript))
