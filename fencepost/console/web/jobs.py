"""Work that goes on behind a page: it belongs to a session, ends with it, and its end is in the audit log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fencepost.client.errors import ClusterError
from fencepost.console.copying import StoppedError
from fencepost.console.web import audit
from fencepost.console.web.audit import Line, Outcome


class TooManyJobsError(Exception):
    """A session, or the console, has as many jobs as it may have."""


logger = logging.getLogger("fencepost.console")

MOST_RUNNING: Final = 2
"""Jobs of a session."""
MOST_IN_ALL: Final = 8
MOST_KEPT: Final = 20


@dataclass(eq=False)
class Job:
    """A job. line: for the audit log. progress: figures for its page, a dataclass. is_allowed: false ends it."""

    title: str
    subject: str
    line: Line
    progress: Any
    total: int
    is_allowed: Callable[[], bool]
    details: dict[str, str] = field(default_factory=dict)
    job_id: str = field(default_factory=lambda: secrets.token_hex(4))
    begun_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    ended_ms: int | None = None
    outcome: Outcome = Outcome.BEGUN
    said: str = ""
    stopped_by: str | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_ms is None

    def should_stop(self) -> str | None:
        """The reason to stop, or None."""
        if self.stopped_by is not None:
            return self.stopped_by
        return None if self.is_allowed() else "the session of the person who started it has ended"

    async def run(self, work: Callable[[], Awaitable[str]]) -> None:
        """Do the work, which returns a sentence, and note its end in any case."""
        try:
            self.said = await work()
            self.outcome = Outcome.DONE
        except StoppedError as error:
            self.outcome, self.said = Outcome.INTERRUPTED, str(error)
        except ClusterError as error:
            self.outcome, self.said = Outcome.FAILED, str(error)
        except asyncio.CancelledError:
            self.outcome, self.said = Outcome.INTERRUPTED, "the console ended"
            raise
        except Exception:
            logger.exception("job %s failed", self.title)
            self.outcome, self.said = Outcome.FAILED, "the console itself failed; its log has the reason"
        finally:
            self.ended_ms = int(time.time() * 1000)
            try:
                await asyncio.shield(audit.record(replace(self.line, outcome=self.outcome, why=self.said)))
            except OSError:
                logger.exception("the audit log lacks the end of %s: %s", self.title, self.outcome.value)


_running: set[Job] = set()


def check_room(jobs: list[Job]) -> None:
    """Refuse more jobs than a session, or the console, may have. Raises TooManyJobsError."""
    if sum(one.is_running for one in jobs) >= MOST_RUNNING:
        raise TooManyJobsError(f"{MOST_RUNNING} jobs of yours are running: wait for one, or stop it")
    if len(_running) >= MOST_IN_ALL:
        raise TooManyJobsError(f"{MOST_IN_ALL} jobs are running in this console: wait for one")


def start(jobs: list[Job], job: Job, work: Callable[[], Awaitable[str]]) -> None:
    """Start a job of a session. Raises TooManyJobsError."""
    check_room(jobs)
    jobs.append(job)
    del jobs[:-MOST_KEPT]
    _running.add(job)
    job.task = asyncio.create_task(job.run(work))
    job.task.add_done_callback(lambda _: _running.discard(job))
