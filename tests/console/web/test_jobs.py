"""Jobs behind pages: their ends are noted, whatever they are, and there are not many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fencepost.client.errors import ClusterError
from fencepost.console.copying import StoppedError
from fencepost.console.web.audit import Line, Outcome, open_audit_log
from fencepost.console.web.jobs import MOST_IN_ALL, MOST_KEPT, MOST_RUNNING, Job, TooManyJobsError, start


def job_of(*, is_allowed: Callable[[], bool] = lambda: True) -> Job:
    return Job("Copy a to b", "b", Line(Outcome.BEGUN, "copy-records", "alice", "here"), None, 1, is_allowed)


async def done() -> str:
    return "All of it."


def failing(error: BaseException) -> Callable[[], Awaitable[str]]:
    async def work() -> str:
        raise error

    return work


@pytest.mark.parametrize(
    ("work", "outcome", "said"),
    [
        (done, Outcome.DONE, "All of it."),
        (failing(StoppedError("enough")), Outcome.INTERRUPTED, "enough"),
        (failing(ClusterError("no leader")), Outcome.FAILED, "no leader"),
        (failing(ZeroDivisionError("odd")), Outcome.FAILED, "the console itself failed; its log has the reason"),
        (failing(asyncio.CancelledError()), Outcome.INTERRUPTED, "the console ended"),
    ],
)
def test_each_end_of_a_job_is_in_the_audit_log(
    tmp_path: Path, work: Callable[[], Awaitable[str]], outcome: Outcome, said: str
) -> None:
    open_audit_log(str(tmp_path / "audit"))

    async def run() -> Job:
        jobs: list[Job] = []
        job = job_of()
        start(jobs, job, work)
        assert jobs == [job]
        assert job.is_running
        assert job.task is not None
        await asyncio.wait([job.task])
        return job

    job = asyncio.run(run())
    assert (job.outcome, job.said, job.is_running) == (outcome, said, False)
    line = json.loads((tmp_path / "audit").read_text())
    assert (line["outcome"], line["why"], line["user"]) == (outcome.value, said, "alice")


def test_a_session_and_the_console_have_few_jobs_at_once_and_keep_few(tmp_path: Path) -> None:
    open_audit_log(str(tmp_path / "audit"))

    async def run() -> None:
        may_end = asyncio.Event()

        async def waits() -> str:
            await may_end.wait()
            return "done"

        sessions: list[list[Job]] = [[] for _ in range(MOST_IN_ALL // MOST_RUNNING + 1)]
        for jobs in sessions[:-1]:
            for _ in range(MOST_RUNNING):
                start(jobs, job_of(), waits)
        with pytest.raises(TooManyJobsError, match="of yours are running"):
            start(sessions[0], job_of(), waits)
        with pytest.raises(TooManyJobsError, match="in this console"):
            start(sessions[-1], job_of(), waits)
        may_end.set()
        await asyncio.wait([job.task for jobs in sessions for job in jobs if job.task is not None])
        for _ in range(MOST_KEPT + 5):
            job = job_of()
            start(sessions[-1], job, done)
            assert job.task is not None
            await job.task
        assert len(sessions[-1]) == MOST_KEPT

    asyncio.run(run())


def test_a_job_stops_for_a_person_and_for_the_end_of_its_session() -> None:
    job = job_of()
    assert job.should_stop() is None
    job.stopped_by = "alice stopped it"
    assert job.should_stop() == "alice stopped it"
    assert job_of(is_allowed=lambda: False).should_stop() == "the session of the person who started it has ended"
