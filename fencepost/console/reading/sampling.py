"""Takes a sample of the cluster every 15 s, for the plots of the last hour, while somebody looks or always."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from fencepost.client.errors import ClusterError, LogInNeededError, LogInRefusedError
from fencepost.console.reading.history import SAMPLE_S, History
from fencepost.console.reading.lag_table import lag_table_of
from fencepost.console.reading.sharing import KEPT_S, Reads
from fencepost.console.reading.snapshot import snapshot_of

logger = logging.getLogger("fencepost.console")

REST: Final = 20
"""A sample that took 1 s is followed by a pause of 20 s."""
LONGEST_PAUSE_S: Final = 50.0
"""Shorter than answers are kept, so that who looks first has one at once."""
LONGEST_SAMPLE_S: Final = 60.0


class Sampler:
    """Samples for one user of one cluster. `is_constant`: also while nobody looks."""

    def __init__(self) -> None:
        self.is_constant = False
        self._task: asyncio.Task[None] | None = None

    def begin(self, reads: Reads, *, is_constant: bool = False) -> History:
        """Go on with sampling, or begin with it; returns the samples."""
        self.is_constant = self.is_constant or is_constant
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(reads))
            reads.at_end = self._task.cancel
        return reads.keep(History)

    async def _run(self, reads: Reads) -> None:
        while not reads.is_abandoned and (self.is_constant or time.monotonic() - reads.looked_s < KEPT_S):
            began_s = time.monotonic()
            try:
                await asyncio.gather(snapshot_of(reads, LONGEST_SAMPLE_S), lag_table_of(reads, LONGEST_SAMPLE_S))
            except (LogInNeededError, LogInRefusedError):
                return
            except ClusterError:
                pass  # a hole in the plots says it
            except Exception:
                logger.exception("sampling the cluster failed")
            took_s = time.monotonic() - began_s
            await asyncio.sleep(min(max(SAMPLE_S - took_s, REST * took_s), LONGEST_PAUSE_S))


def history_of(reads: Reads) -> History:
    """The last hour as one user sees it, which is sampled from now on."""
    return reads.keep(Sampler).begin(reads)
