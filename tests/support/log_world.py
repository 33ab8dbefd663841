"""A log directory on the real disk that tests can stop, crash, damage and start again, with short ways to write."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import AppendResult, PartitionLog
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
ORDERS = TopicPartition("orders", 0)


def content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def replace(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def overwrite(path: str, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


class ManualClock:
    """Time that stands still unless the test moves it."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class LogWorld:
    """One log directory that can be stopped, crashed and started again, and short ways to write into its logs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.clock = ManualClock()
        self.config = LogConfig()
        self.disk = LocalDisk()
        self.logs = LogDirectory(path, disk=self.disk, clock=self.clock)

    async def start(self) -> None:
        await self.logs.open(lambda _: self.config)

    async def stop(self) -> None:
        await self.logs.close()
        self.disk.close()

    async def checkpointed(self) -> None:
        """Wait for the checkpoint that a sweep has begun."""
        if self.logs._checkpointing is not None:
            await self.logs._checkpointing

    async def restart(self, *, crash: bool = False) -> PartitionLog:
        """Stop cleanly, or forget everything in memory as a kill -9 does; then start. Returns the log of ORDERS."""
        if crash:
            self.disk.close()
        else:
            await self.stop()
        self.disk = LocalDisk()
        self.logs = LogDirectory(self.path, disk=self.disk, clock=self.clock)
        await self.start()
        return self.orders

    @property
    def orders(self) -> PartitionLog:
        found = self.logs.get(ORDERS)
        assert found is not None
        return found

    def create(self, config: LogConfig | None = None) -> PartitionLog:
        if config is not None:
            self.config = config
        return self.logs.create(ORDERS, TOPIC_ID, self.config)

    def append(
        self,
        *values: bytes,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append one batch to ORDERS; a transactional one is verified first."""
        log = self.orders
        time_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        batch = build_batch(
            [Record(index, time_ms, key, value) for index, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        if is_transactional and guard is None:
            verification = log.begin_verification(
                producer_id, producer_epoch, base_sequence, transaction_version_2=True
            )
            guard = verification if isinstance(verification, VerificationGuard) else None
        result = log.append(memoryview(batch), now_ms=self.clock.now_ms(), guard=guard)
        if is_transactional and result.error is ErrorCode.NONE:
            log.confirm_owner(producer_id, "")
        return result

    def append_records(self, *records: Record) -> AppendResult:
        """Append one plain batch of just these records to ORDERS."""
        batch = memoryview(build_batch(records))
        return self.orders.append(batch, now_ms=self.clock.now_ms())

    def end_transaction(self, producer_id: int, producer_epoch: int, *, committed: bool) -> ErrorCode:
        return self.orders.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
            coordinator_epoch=0,
            transaction_version=2,
            now_ms=self.clock.now_ms(),
        )
