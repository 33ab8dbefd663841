"""Background opening of the logs that startup deferred, one after another while clients are served.

A log that a request needs is opened first.
"""

from __future__ import annotations

import asyncio
import contextvars

from fencepost.broker.hosting.hosted_logs import HostedLogs
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.directory.log_opening import report_unopened
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import MetadataImage
from fencepost.broker.storage.disk import StorageError

BACKGROUND_OPENING = Place("opening of the logs that a start has left", Policy.RETRY)
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 60.0


class BackgroundOpening:
    """Opens and serves the logs that `LogDirectory.open` has deferred.

    changing: held while a batch of them is opened: no topic is created, deleted or grown meanwhile.
    """

    def __init__(self, logs: LogDirectory, hosted: HostedLogs, metadata: MetadataImage, changing: asyncio.Lock) -> None:
        self._logs = logs
        self._hosted = hosted
        self._metadata = metadata
        self._changing = changing
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._pause_s = FIRST_PAUSE_S
        self._is_closing = False

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        """Whether this node leads the partition and does not serve its log yet."""
        return topic_partition in self._logs.unopened

    def begin(self) -> None:
        """Start the background opening, if logs are deferred and it does not run."""
        is_idle = self._task is None or self._task.done()
        if is_idle and self._logs.unopened.has_next and not self._is_closing:
            # In the broker's own context, not in the caller's.
            self._task = self._context.copy().run(self._begin)

    def _begin(self) -> asyncio.Task[None]:
        return BACKGROUND_OPENING.start(self._open_remaining(), on_failure=lambda _: self._begin_again())

    def _begin_again(self) -> None:
        """Retry after a pause; a request for a log may start it earlier."""
        if not self._is_closing:
            begin = BACKGROUND_OPENING.callback(self.begin)
            self._again = asyncio.get_running_loop().call_later(self._pause_s, begin)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def open_on_demand(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Open and return a deferred log for a request; None if it cannot be served yet: then it is opened next."""
        try:
            if self._logs.open_now(topic_partition):
                return self._serve(topic_partition)
        except StorageError as error:
            report_unopened(self._logs.path, topic_partition, error)
        self.begin()
        return None

    async def ensure_opened(self) -> None:
        """Wait until all deferred logs are open, except those that cannot be opened."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Stop after the log that is being opened, which after a crash may take long: it may have a large segment."""
        self._is_closing = True
        if self._again is not None:
            self._again.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _open_remaining(self) -> None:
        while self._logs.unopened.has_next and not self._is_closing:
            async with self._changing:
                for topic_partition in await self._logs.open_next():
                    self._serve(topic_partition)
            self._pause_s = FIRST_PAUSE_S
            await asyncio.sleep(0)
        if not self._is_closing:
            self._logs.report_opened()

    def _serve(self, topic_partition: TopicPartition) -> PartitionLog | None:
        try:
            served = self._hosted.serve_opened(topic_partition, self._metadata.get(topic_partition.topic))
        except StorageError as error:
            self._logs.unopened.fail(topic_partition)
            report_unopened(self._logs.path, topic_partition, error)
            return None
        self._logs.unopened.discard(topic_partition)
        return served
