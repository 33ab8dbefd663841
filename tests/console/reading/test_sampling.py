"""Samples are taken while somebody looks, or always; what fails is a hole."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.errors import LogInNeededError, UnreachableError
from fencepost.console.reading import sampling
from fencepost.console.reading.sampling import Sampler, history_of
from fencepost.console.reading.sharing import KEPT_S, Reads
from tests.console.simulated import SimulatedCluster


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a sampler makes, none of which takes any time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(sampling, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": pause}))
    return made


def task_of(reads: Reads) -> asyncio.Task[None]:
    task = reads.keep(Sampler)._task
    assert task is not None
    return task


async def test_it_ends_when_nobody_looks_any_more(pauses: list[float]) -> None:
    reads = Reads(0, 30)
    reads.add(SimulatedCluster({"orders": 1}, groups=1))
    history = history_of(reads)
    assert history_of(reads) is history
    task = task_of(reads)
    reads.looked_s = time.monotonic() - KEPT_S
    await asyncio.wait_for(task, 10)
    assert len(history.rates()) <= 1
    history_of(reads)
    assert task_of(reads) is not task, "somebody looks again"
    reads.close()


async def test_one_that_is_constant_goes_on_without_a_look_until_all_have_left(pauses: list[float]) -> None:
    cluster = SimulatedCluster({"orders": 1}, groups=1)
    reads = Reads(0, 30)
    reads.add(cluster)
    reads.looked_s = time.monotonic() - 10 * KEPT_S
    reads.keep(Sampler).begin(reads, is_constant=True)
    while len(pauses) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not task_of(reads).done()
    assert all(10 < pause <= sampling.LONGEST_PAUSE_S for pause in pauses if pause)
    cluster.close()
    await asyncio.wait_for(task_of(reads), 10)


@pytest.mark.parametrize(("error", "goes_on"), [(UnreachableError("away"), True), (LogInNeededError(), False)])
async def test_a_cluster_that_does_not_answer_is_a_hole_and_one_that_needs_a_log_in_ends_it(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch, error: Exception, *, goes_on: bool
) -> None:
    async def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(sampling, "snapshot_of", fail)
    reads = Reads(0, 30)
    reads.add(SimulatedCluster({"orders": 1}))
    history_of(reads)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert task_of(reads).done() is not goes_on
    reads.close()
