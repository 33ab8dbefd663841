"""What checkers look at: every byte that goes into a log and every reply, in one order, as they happen.

The order numbers are shared by appends and replies, so that what was written before a client had its answer can be told
from what was written after. Bytes are taken from the simulated disks, not from the broker's objects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.broker.log.files.partition_files import METADATA_FILE
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.simulation.disk import Operation
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.offsets_log import OffsetsLog
from tests.simulation.invariants.stored_log import StoredBatch, read_segment
from tests.simulation.invariants.transaction_log import TransactionLog
from tests.simulation.loop import START_MS
from tests.simulation.trace import Exchange

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.world import World

GIVEN_UP_AFTER_S = 90.0
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
DIRECTORY = re.compile(r".*/(?P<topic>[^/]+)-(?P<partition>\d+)")
LOG_FILE = re.compile(r"(?P<directory>.*/[^/]+-\d+)/(?P<base_offset>\d{20})\.log")

Key = tuple[int, TopicPartition]


class LogFileSeen(NamedTuple):
    """A log file as it was last read. read_bytes: up to the end of the last whole batch."""

    content: bytes
    read_bytes: int
    batches: list[StoredBatch]


class Evidence:
    """Follows a world from before its first broker starts.

    histories:    by node and partition. deleted: those of partitions that are no more.
    transactions: what the coordinators' logs say.
    offsets:      what the logs of committed offsets say.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.order = 0
        self.histories: dict[Key, PartitionHistory] = {}
        self.deleted: list[PartitionHistory] = []
        self.transactions = TransactionLog()
        self.offsets = OffsetsLog()
        self.on_appended: list[Callable[[PartitionHistory, StoredBatch], None]] = []
        self.on_rewound: list[Callable[[PartitionHistory], None]] = []
        self.on_answered: list[Callable[[Exchange], None]] = []
        self.on_restarted: list[Callable[[SimulatedBroker], None]] = []
        self.sent_order: dict[int, int] = {}
        self.served_since_s: dict[int, float] = {}
        self._skews_ms: list[int] = [0, 0]
        self._homes: dict[TopicPartition, int] = {}
        self._moved_s: dict[TopicPartition, float] = {}
        self._files: dict[tuple[int, str], LogFileSeen] = {}
        self._compacted: dict[str, bool] = {}
        self._unsure: dict[Key, None] = {}
        self._start_counts: dict[int, int] = {}
        self._unserved: dict[int, None] = {}
        self._unrecovered: dict[int, None] = {}
        self._waiting: list[Exchange] = []
        self._sessions: dict[str, list[Exchange]] = {}
        self._seen_entries = 0
        world.disk_observers.append(self._disk_changed)
        world.placement_observers.append(self._moved)

    # Questions

    @property
    def clock_spread_s(self) -> float:
        """How much longer or shorter a time may have looked to brokers, whose clocks were set forward and back."""
        return (self._skews_ms[1] - self._skews_ms[0]) / 1000

    @property
    def producer_expiration_s(self) -> float:
        """A producer that was silent for so long may have been forgotten by a partition."""
        expirations_ms = [
            int(broker.settings.get("producer.id.expiration.ms", DEFAULT_PRODUCER_ID_EXPIRATION_MS))
            for broker in self.world.brokers.values()
        ]
        return min(expirations_ms) / 1000 - self.clock_spread_s

    def requests_about(self, transactional_id: str) -> list[Exchange]:
        """All InitProducerId and EndTxn of a transactional id so far."""
        return self._sessions.get(transactional_id, [])

    @property
    def now_s(self) -> float:
        return self.world.loop.time()

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    def of(self, topic_partition: TopicPartition) -> PartitionHistory | None:
        """The history of a partition; where several nodes have had it, that of its leader, or the longest."""
        found = [history for (_, name), history in self.histories.items() if name == topic_partition]
        return max(found, key=lambda history: (self.live_log(history) is not None, history.end_offset), default=None)

    def of_topic(self, topic: str) -> list[PartitionHistory]:
        return [history for (_, name), history in self.histories.items() if name.topic == topic]

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is deleted, or was: processes know that moments before its directory is renamed."""
        if self.world.processes is not None and topic_partition not in self.world.processes.placed:
            return True
        return any(history.topic_partition == topic_partition for history in self.deleted)

    def moved_since(self, topic_partition: TopicPartition, at_s: float) -> bool:
        """Whether a partition went from one node to another since then."""
        return self._moved_s.get(topic_partition, -1.0) >= at_s

    def is_led_elsewhere(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a partition has moved, and that node does not have it now; it may not know."""
        return self._homes.get(topic_partition, node_id) != node_id

    def live_log(self, history: PartitionHistory) -> PartitionLog | None:
        """The log that serves a history now; None while its broker is down, has not opened it yet or has given it
        up."""
        broker = self.world.brokers[history.node_id]
        if not broker.is_running:
            return None
        topics = broker.node.services.topics
        if topics.is_unopened(history.topic_partition):
            return None  # to ask for it would open it
        partition_log = topics.log(history.topic_partition)
        return None if partition_log is None or partition_log.is_offline else partition_log

    def live_logs(self) -> Iterator[tuple[PartitionHistory, PartitionLog]]:
        for history in list(self.histories.values()):
            partition_log = self.live_log(history)
            if partition_log is not None:
                yield history, partition_log

    def _has_unopened(self, broker: SimulatedBroker) -> bool:
        """Whether a start has left logs that are not open yet; not those that could not be opened."""
        return broker.node.services.topics.directory.unopened.has_next

    def is_compacted(self, topic: str) -> bool:
        """Whether the cleaner takes older records of a key out of a topic."""
        found = self._compacted.get(topic)
        for broker in self.world.brokers.values() if found is None else ():
            configs = broker.node.services.topics.topic_config(topic) if broker.is_running else None
            if configs is not None:
                found = any(config.name == "cleanup.policy" and "compact" in str(config.value) for config in configs)
                self._compacted[topic] = found
        return topic in INTERNAL_TOPICS if found is None else found

    def topic_name(self, name: str, topic_id: bytes) -> str | None:
        """A topic that a request names in one of the two ways."""
        if name:
            return name
        for broker in self.world.brokers.values():
            if broker.is_running:
                metadata = broker.node.services.topics.metadata.get_by_id(topic_id)
                return None if metadata is None else metadata.name
        return None

    # Following the world

    def observe(self) -> None:
        """Catch up with brokers that have started and files that were rewritten."""
        for node_id, broker in self.world.brokers.items():
            self._notice_start(broker)
            if not broker.is_running:
                continue
            for key in [key for key in self._unsure if key[0] == node_id]:
                self._read_again(key)
            if node_id in self._unserved:
                del self._unserved[node_id]
                self.served_since_s[node_id] = self.now_s
                self._take_answers()
                self._unrecovered[node_id] = None
            if node_id in self._unrecovered and not self._has_unopened(broker):
                del self._unrecovered[node_id]
                for observe in self.on_restarted:
                    observe(broker)
        self._take_answers()

    def _disk_changed(self, broker: SimulatedBroker, operation: Operation) -> None:
        self._notice_start(broker)
        if operation.kind in ("sync", "metadata", "open", "make_directory"):
            return
        match = LOG_FILE.fullmatch(operation.path)
        if operation.kind == "append":
            if match is not None:
                self._take_answers()
                key = broker.node_id, name_of(match["directory"])
                if self.is_led_elsewhere(*key):
                    return
                if key in self._unsure:
                    self._read_again(key)
                else:
                    self._take_appended(broker, key, operation.path)
            return
        self._removed(broker.node_id, operation.path)
        directory = operation.path.rpartition("/")[0]
        if DIRECTORY.fullmatch(directory) is not None and not self.is_led_elsewhere(broker.node_id, name_of(directory)):
            self._unsure[broker.node_id, name_of(directory)] = None

    def _moved(self, topic_partition: TopicPartition, source_id: int, target_id: int) -> None:
        """What was one node's log is another's from now on; what is left of it with the first is of no account."""
        source, target = (source_id, topic_partition), (target_id, topic_partition)
        is_unsure = source in self._unsure
        self._unsure.pop(source, None)
        self._homes[topic_partition] = target_id
        self._moved_s[topic_partition] = self.now_s
        inside = f"/{topic_partition}/"
        for stale in [known for known in self._files if known[0] == target_id and inside in known[1]]:
            del self._files[stale]
        here, there = (self.world.brokers[node_id].data_directory for node_id in (source_id, target_id))
        for known in [known for known in self._files if known[0] == source_id and inside in known[1]]:
            self._files[target_id, there + known[1].removeprefix(here)] = self._files.pop(known)
        history = self.histories.pop(source, None)
        if history is not None:
            history.node_id = target_id
            self.histories[target] = history
        if is_unsure:
            self._read_again(target)

    def _removed(self, node_id: int, path: str) -> None:
        """A directory, if that is what it is, was renamed for its deletion, or deleted."""
        match = DIRECTORY.fullmatch(path)
        history = self.histories.pop((node_id, name_of(path)), None) if match is not None else None
        if history is not None:
            history.is_deleted = True
            self.deleted.append(history)
            self._unsure.pop((node_id, history.topic_partition), None)
        for known in [known for known in self._files if known[0] == node_id and known[1].startswith(f"{path}/")]:
            del self._files[known]

    def _notice_start(self, broker: SimulatedBroker) -> None:
        """A process that has just begun finds what the last one left: before it writes anything, that is the truth."""
        self._note_skew(broker)
        if self._start_counts.get(broker.node_id) == broker.start_count:
            return
        self._note_start(broker)
        found = [match for path in broker.disk.paths(broker.data_directory) if (match := LOG_FILE.fullmatch(path))]
        names = dict.fromkeys(
            name
            for match in found
            if not self.is_led_elsewhere(broker.node_id, name := name_of(match["directory"]))
            and not self._has_come_back(broker, name)
        )
        for key in [key for key in self.histories if key[0] == broker.node_id and key[1] not in names]:
            self._rewind(self.histories[key], 0)
        for topic_partition in names:
            self._read_again((broker.node_id, topic_partition))

    def _note_skew(self, broker: SimulatedBroker) -> None:
        skew_ms = broker.clock.skew_ms
        if not self._skews_ms[0] <= skew_ms <= self._skews_ms[1]:
            self._skews_ms = [min(self._skews_ms[0], skew_ms), max(self._skews_ms[1], skew_ms)]

    def _note_start(self, broker: SimulatedBroker) -> None:
        self._start_counts[broker.node_id] = broker.start_count
        self._unserved[broker.node_id] = None
        self._unrecovered.pop(broker.node_id, None)
        self.served_since_s.pop(broker.node_id, None)
        self._take_answers()

    def _has_come_back(self, broker: SimulatedBroker, topic_partition: TopicPartition) -> bool:
        """Whether a power loss brought back the directory of a deleted topic, which the start removes again."""
        if (broker.node_id, topic_partition) in self.histories:
            return False
        topic = broker.store.topic(topic_partition.topic)
        if topic is None or topic_partition.partition >= topic.partition_count:
            return True
        path = f"{broker.data_directory}/{topic_partition}/{METADATA_FILE}"
        content = broker.disk.content(path) if broker.disk.exists_now(path) else b""
        return bool(content) and base64.urlsafe_b64encode(topic.topic_id).rstrip(b"=") not in content

    def _take_appended(self, broker: SimulatedBroker, key: Key, path: str) -> None:
        content = broker.disk.content(path)
        known = self._files.get((broker.node_id, path), LogFileSeen(b"", 0, []))
        self.order += 1
        fresh, read_bytes = read_segment(content, known.read_bytes, order=self.order, at_s=self.now_s)
        self._files[broker.node_id, path] = LogFileSeen(content, read_bytes, known.batches + fresh)
        for batch in fresh:
            self._append(self._history(key), batch)

    def _read_again(self, key: Key) -> None:
        """Compare all files of a partition with what is known of it."""
        self._unsure.pop(key, None)
        node_id, _ = key
        broker = self.world.brokers[node_id]
        history = self._history(key)
        present: list[StoredBatch] = []
        end_offset = 0
        self.order += 1
        for path, content in self._segments(broker, key):
            known = self._files.get((node_id, path))
            if known is None or known.content != content:
                batches, read_bytes = read_segment(content, 0, order=self.order, at_s=self.now_s)
                known = self._files[node_id, path] = LogFileSeen(content, read_bytes, batches)
            match = LOG_FILE.fullmatch(path)
            assert match is not None
            present += known.batches
            end_offset = max(end_offset, int(match["base_offset"]), *(batch.last_offset + 1 for batch in known.batches))
            if known.read_bytes < len(content):
                break  # what follows a torn batch is not a part of the log
        self._take_present(history, present, end_offset)

    def _take_present(self, history: PartitionHistory, present: list[StoredBatch], end_offset: int) -> None:
        if history.end_offset > end_offset:
            self._rewind(history, end_offset)
        known = {batch.base_offset: batch for batch in history.batches}
        fresh = [batch for batch in present if batch.base_offset >= history.end_offset]
        old = present[: len(present) - len(fresh)]
        history.present = [
            known[batch.base_offset]
            if batch.base_offset in known and known[batch.base_offset].raw == batch.raw
            else batch
            for batch in old
        ]
        if len(old) != len(known) or any(batch is not known.get(batch.base_offset) for batch in history.present):
            history.is_whole = False
        for batch in fresh:
            self._append(history, batch)

    def _rewind(self, history: PartitionHistory, end_offset: int) -> None:
        history.rewind(end_offset)
        history.present = [batch for batch in history.present if batch.last_offset < end_offset]
        topic = history.topic_partition.topic
        if topic == TRANSACTION_STATE_TOPIC:
            self.transactions.rebuild(self.of_topic(topic))
        elif topic == CONSUMER_OFFSETS_TOPIC:
            self.offsets.rebuild(history)
        for observe in self.on_rewound:
            observe(history)

    def _append(self, history: PartitionHistory, batch: StoredBatch) -> None:
        history.append(batch)
        history.present.append(batch)
        topic = history.topic_partition.topic
        if topic == TRANSACTION_STATE_TOPIC:
            self.transactions.append(history, batch)
        elif topic == CONSUMER_OFFSETS_TOPIC:
            self.offsets.append(history, batch)
        for observe in self.on_appended:
            observe(history, batch)

    def _take_answers(self) -> None:
        entries = self.world.trace.entries
        if self._seen_entries == len(entries) and not self._waiting:
            return
        for entry in entries[self._seen_entries :]:
            if isinstance(entry, Exchange):
                self.sent_order[entry.number] = self.order
                self._waiting.append(entry)
                if isinstance(entry.request, InitProducerIdRequest | EndTxnRequest):
                    self._sessions.setdefault(entry.request.transactional_id or "", []).append(entry)
        self._seen_entries = len(entries)
        answered = [exchange for exchange in self._waiting if exchange.response is not None]
        if answered:
            oldest_s = self.now_s - GIVEN_UP_AFTER_S
            self._waiting = [
                exchange for exchange in self._waiting if exchange.response is None and exchange.sent_s > oldest_s
            ]
            for exchange in sorted(answered, key=lambda exchange: exchange.answered_s or 0.0):
                self.order += 1
                for observe in self.on_answered:
                    observe(exchange)

    # Files

    def _history(self, key: Key) -> PartitionHistory:
        history = self.histories.get(key)
        if history is None:
            node_id, topic_partition = key
            history = self.histories[key] = PartitionHistory(topic_partition, node_id)
        return history

    def _segments(self, broker: SimulatedBroker, key: Key) -> list[tuple[str, bytes]]:
        """The log files of a partition, in order, with their content."""
        return [
            (path, broker.disk.content(path))
            for path in broker.disk.paths(broker.data_directory)
            if (match := LOG_FILE.fullmatch(path)) and name_of(match["directory"]) == key[1]
        ]

    def files_of(self, history: PartitionHistory) -> dict[str, bytes]:
        """All files that belong to a history now, by their names."""
        broker = self.world.brokers[history.node_id]
        directory = f"/{history.topic_partition}/"
        return {
            path.rpartition("/")[2]: broker.disk.content(path)
            for path in broker.disk.paths(broker.data_directory)
            if directory in path
        }


def name_of(directory: str) -> TopicPartition:
    topic, _, partition = directory.rpartition("/")[2].rpartition("-")
    return TopicPartition(topic, int(partition))
