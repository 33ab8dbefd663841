"""The evidence of a world on an engine: a partition's log is what its leader has in its scratch, from what the engine
had when it began to lead.

Whatever else lies in scratches is of no account: what a node was about to flush when it lost its partition, what is
being restored, what a node that was deposed goes on to write.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import METADATA_FILE
from tests.simulation.disk import Operation
from tests.simulation.invariants.evidence import DIRECTORY, LOG_FILE, Evidence, Key, LogFileSeen, name_of
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.stored_log import read_segment

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.engine_cluster import EngineCluster
    from tests.simulation.world import World


class EngineEvidence(Evidence):
    """differences: of what was restored from what had been flushed, each in a sentence."""

    def __init__(self, world: World, cluster: EngineCluster) -> None:
        super().__init__(world)
        self.cluster = cluster
        self.differences: list[str] = []
        self._keys: dict[PartitionKey, TopicPartition] = {}
        world.placement_observers.remove(self._moved)
        world.leader_observers.append(self._led_anew)
        world.partition_deletion_observers.append(self._deleted)

    def history_of(self, key: PartitionKey) -> PartitionHistory | None:
        """The history of a partition that exists."""
        name = self._keys.get(key)
        home = None if name is None else self._homes.get(name)
        return None if home is None or name is None else self.histories.get((home, name))

    # Following the world

    def _led_anew(self, name: TopicPartition, node_id: int | None, end_offset: int) -> None:
        """A partition has a leader, or a leader epoch: all that was not committed has never been."""
        self._take_answers()
        key = self.cluster.key(name)
        assert key is not None
        self._keys[key] = name
        home = self._homes.get(name)
        if node_id is None:
            return
        self._homes[name] = node_id
        if home is None:
            return
        self._forget_files(name)
        self._unsure.pop((home, name), None)
        if home != node_id:
            self._moved_s[name] = self.now_s
        history = self.histories.pop((home, name), None)
        if history is None:
            return
        history.node_id = node_id
        self.histories[node_id, name] = history
        if history.end_offset > end_offset:
            self._rewind(history, end_offset)

    def _deleted(self, key: PartitionKey) -> None:
        name = self._keys.pop(key, None)
        if name is None:
            return
        home = self._homes.pop(name, None)
        history = None if home is None else self.histories.pop((home, name), None)
        if history is not None:
            history.is_deleted = True
            self.deleted.append(history)
        self._forget_files(name)

    def _forget_files(self, name: TopicPartition) -> None:
        inside = f"/{name}/"
        for known in [known for known in self._files if inside in known[1]]:
            del self._files[known]

    def _disk_changed(self, broker: SimulatedBroker, operation: Operation) -> None:
        self._notice_start(broker)
        if operation.kind in ("sync", "metadata", "open", "make_directory"):
            return
        if operation.kind != "append":
            for known in [known for known in self._files if known[0] == broker.node_id]:
                if known[1] == operation.path or known[1].startswith(f"{operation.path}/"):
                    del self._files[known]
        directory, _, _ = operation.path.rpartition("/")
        if operation.path.count("/") != broker.data_directory.count("/") + 2:
            return
        if DIRECTORY.fullmatch(directory) is None:
            return
        name = name_of(directory)
        if not self._is_of_leader(broker, name, directory):
            return
        if operation.kind != "append":
            self._unsure[broker.node_id, name] = None
        elif LOG_FILE.fullmatch(operation.path) is not None:
            self._take_answers()
            self._take_appended(broker, (broker.node_id, name), operation.path)

    def _is_of_leader(self, broker: SimulatedBroker, name: TopicPartition, directory: str) -> bool:
        """Whether a directory is of the partition that this broker leads now, and not of an older topic."""
        if self._homes.get(name) != broker.node_id:
            return False
        key = self.cluster.key(name)
        path = f"{directory}/{METADATA_FILE}"
        if key is None or not broker.disk.exists_now(path):
            return False
        return base64.urlsafe_b64encode(key.topic_id).rstrip(b"=") in broker.disk.content(path)

    def _take_appended(self, broker: SimulatedBroker, key: Key, path: str) -> None:
        content = broker.disk.content(path)
        known = self._files.get((broker.node_id, path))
        start = 0 if known is None else known.read_bytes
        batches = [] if known is None else known.batches
        self.order += 1
        fresh, read_bytes = read_segment(content, start, order=self.order, at_s=self.now_s)
        history = self._history(key)
        self._files[broker.node_id, path] = LogFileSeen(content, read_bytes, batches + fresh)
        for batch in fresh:
            if batch.base_offset >= history.end_offset:
                self._append(history, batch)
                continue
            before = history.batch_at(batch.base_offset)
            if before is None or (before.raw != batch.raw and not self.is_compacted(key[1].topic)):
                self.differences.append(f"{key[1]} had {before}, and {broker.host} has restored {batch}")

    def _notice_start(self, broker: SimulatedBroker) -> None:
        """A process that has just begun finds nothing: what its node had not flushed is gone once it leads again."""
        self._note_skew(broker)
        if self._start_counts.get(broker.node_id) == broker.start_count:
            return
        for known in [known for known in self._files if known[0] == broker.node_id]:
            del self._files[known]
        for key in [key for key in self._unsure if key[0] == broker.node_id]:
            del self._unsure[key]
        self._note_start(broker)

    def _read_again(self, key: Key) -> None:
        history = self.histories.get(key)
        if history is None or self.live_log(history) is None:
            self._unsure.pop(key, None)
            return  # it is being restored, or is not led here any more
        super()._read_again(key)

    # Files

    def _segments(self, broker: SimulatedBroker, key: Key) -> list[tuple[str, bytes]]:
        """Those in the scratch, and in place of those that are away their objects."""
        found = super()._segments(broker, key)
        away = self._away(self._history(key))
        directory = f"{broker.data_directory}/{key[1]}"
        return sorted([*found, *((f"{directory}/{name}", content) for name, content in away.items() if ".log" in name)])

    def files_of(self, history: PartitionHistory) -> dict[str, bytes]:
        return self._away(history) | super().files_of(history)

    def _away(self, history: PartitionHistory) -> dict[str, bytes]:
        """The files of the segments that the leader has not brought."""
        partition_log = self.live_log(history)
        if partition_log is None:
            return {}
        here = super().files_of(history)
        away = {f"{segment.base_offset:020d}" for segment in partition_log.segments}
        away = {number for number in away if f"{number}.log" not in here}
        sealed = self.cluster.sealed_files(history.topic_partition)
        return {name: content for name, content in sealed.items() if name.partition(".")[0] in away}
