"""What a request costs does not grow unnoticed: counted, not timed, so that it tells the same on every machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.schema import encode
from tests.costs import baseline
from tests.costs.counting import Counts, counting
from tests.costs.replays import REPLAYS


@pytest.mark.parametrize("name", REPLAYS)
def test_the_cost_of_a_request_is_unchanged(name: str, tmp_path: Path, reported_at_the_end: list[str]) -> None:
    known = baseline.read().get(baseline.VERSION)
    if known is None:
        pytest.skip(f"no baseline for Python {baseline.VERSION}; `{baseline.REWRITE}` writes it")
    counts = baseline.measure(name, str(tmp_path))
    grown, shrunk = baseline.compare(counts, known[name])
    assert not grown, f"{name} costs more: {'; '.join(grown)}. If it must: {baseline.REWRITE}"
    if shrunk:
        reported_at_the_end.append(f"{name} costs less: {'; '.join(shrunk)}. `{baseline.REWRITE}` keeps it so.")


def test_counts_are_the_same_each_time(tmp_path: Path) -> None:
    assert baseline.measure("produce", str(tmp_path / "1")) == baseline.measure("produce", str(tmp_path / "2"))


def test_a_tenth_more_is_noticed() -> None:
    known = {"instructions": 1_000, "calls": 100, "c_calls": 10}
    assert baseline.compare(Counts(1_100, 90, 11), known) == ([], [])
    grown, shrunk = baseline.compare(Counts(1_101, 89, 10), known)
    assert grown == ["instructions: 1,000 before, 1,101 now"]
    assert shrunk == ["calls: 100 before, 89 now"]


def test_only_the_brokers_work_is_counted() -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["application"])
    encode(request, 4)  # compiles its writer
    counts, nothing = Counts(), Counts()
    with counting(counts):
        content = encode(request, 4)
    with counting(nothing):
        json.loads(json.dumps({"application": [1, 2, 3]}))
    assert bytes(content)
    assert counts.calls >= 2, "the writer is generated code"
    assert counts.instructions > 10 * counts.calls
    assert nothing == Counts()


def test_an_earlier_tracer_goes_on_afterwards() -> None:
    before = sys.gettrace(), sys.getprofile()
    with pytest.raises(ZeroDivisionError), counting(Counts()):
        _ = 1 / 0
    assert (sys.gettrace(), sys.getprofile()) == before


def test_a_new_baseline_leaves_those_of_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "PATH", tmp_path / "baseline.json")
    baseline.PATH.write_text('{"2.7": {"produce": {"calls": 1}}}')
    baseline.write({"produce": Counts(30, 20, 10)})
    assert baseline.read() == {
        "2.7": {"produce": {"calls": 1}},
        baseline.VERSION: {"produce": {"instructions": 30, "calls": 20, "c_calls": 10}},
    }
