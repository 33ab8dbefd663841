"""What must come up somewhere in enough worlds, or they prove less than they seem to.

A situation is recognised in what passed over the wire, in what brokers wrote and logged, or by the fault that caused it
(`World.reached`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.record_batch import read_header
from tests.simulation.cluster_lookout import CLUSTER_SITUATIONS, ClusterLookout
from tests.simulation.crossing import Crossings
from tests.simulation.invariants.transaction_log import ONGOING, StateRecord
from tests.simulation.nemesis import Fault
from tests.simulation.situations import (
    A_COMMIT_IS_IN_DOUBT,
    A_DUPLICATE_IS_ACKNOWLEDGED,
    A_FLUSH_IS_REFUSED,
    A_GROUP_MOVES_ON_IN_A_TRANSACTION,
    A_KEPT_TRANSACTION_IS_ENDED,
    A_KEPT_TRANSACTION_IS_LOADED,
    A_LATER_SEGMENT_HAS_ABORTS,
    A_LOG_IS_WANTED_BEFORE_IT_IS_OPEN,
    A_MARKER_IS_WRITTEN_AGAIN,
    A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR,
    A_PREPARED_TRANSACTION_IS_LOADED,
    A_PREPARED_TRANSACTION_IS_OVERRULED,
    A_PRODUCER_ID_IS_REPLACED,
    A_SEGMENT_ROLLS,
    A_SNAPSHOT_IS_READ,
    A_TOPIC_IS_CREATED_AGAIN,
    A_ZOMBIE_IS_FENCED,
    AN_EPOCH_IS_EXHAUSTED,
    AN_ID_EXPIRES,
    AN_ODD_RECORD_IS_WRITTEN,
    AN_OLD_PAIR_IS_REFUSED,
    CLIENTS_COME_BEFORE_LOGS_ARE_OPEN,
    SOMETHING_IS_ACKNOWLEDGED_BY_A_TOPIC_CREATED_AGAIN,
    SOMETHING_UNFORESEEN_IS_RAISED,
    THE_CHECK_BACK_ENDS_A_TRANSACTION,
    THE_END_OF_A_KEPT_TRANSACTION_IS_REPEATED,
    TIME_PASSES_OVER_A_TRANSACTION,
    TWO_SESSIONS_KEEP,
)
from tests.simulation.trace import Exchange

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.disk import Operation
    from tests.simulation.invariants.evidence import Evidence
    from tests.simulation.invariants.history import PartitionHistory
    from tests.simulation.invariants.stored_log import StoredBatch
    from tests.simulation.world import World

_LOGGED: Final = {
    "transaction_timed_out": "a transaction times out",
    "transaction_fenced": "a transaction is ended by the next producer's InitProducerId",
    "torn_tail_cut": "a log's torn end is cut off",
    "group_member_removed": "a member's session times out",
    "log_cleaned": "a log is compacted",
    "segments_deleted": "segments are deleted",
    "partition_went_offline": "a partition goes offline",
    "index_rebuilt": "an index is built anew",
    "topic_deleted": "a topic is deleted",
    "unclean_stop_found": "a broker finds an unclean stop",
    "transaction_kept": "a session keeps the transaction of the one before",
    "node_taken_over": "a broker takes over from one whose lease is over",
    "node_resigned": "a broker resigns, as another one has taken over",
    "lease_not_renewed": "a lease cannot be renewed",
    "flush_waits": "a flush waits for the database",
    "flush_committed_late": "a flush without an answer is made good",
    "flush_not_stored": "the object of a large flush cannot be stored",
    "logs_restored": "logs are restored from an engine",
    "restoring_waits": "restoring waits for the engine",
    "segment_sealed": "a segment is sealed",
    "segment_not_sealed": "a segment cannot be sealed",
    "segment_waits": "a segment that is wanted cannot be brought yet",
    "objects_removed": "objects that no row names are removed",
    "partitions_handed_over": "partitions are handed over",
}

# Not all replies that a producer can get: the scenarios have those that correct clients never get.
_CODES: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (ApiKey.PRODUCE,),
    ErrorCode.INVALID_PRODUCER_EPOCH: (ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT),
    ErrorCode.INVALID_TXN_STATE: (ApiKey.END_TXN,),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (ApiKey.END_TXN,),
    ErrorCode.CONCURRENT_TRANSACTIONS: (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
    ErrorCode.PRODUCER_FENCED: (ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (ApiKey.OFFSET_FETCH,),
    ErrorCode.UNKNOWN_MEMBER_ID: (ApiKey.TXN_OFFSET_COMMIT,),
    ErrorCode.KAFKA_STORAGE_ERROR: (ApiKey.PRODUCE,),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (ApiKey.OFFSET_COMMIT,),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
}
_ANSWERS: Final = {
    (api, error): f"{api.name} is answered {error.name}" for error, apis in _CODES.items() for api in apis
}

SITUATIONS: Final = (
    *(fault.value for fault in Fault),
    *_ANSWERS.values(),
    *_LOGGED.values(),
    A_DUPLICATE_IS_ACKNOWLEDGED,
    SOMETHING_UNFORESEEN_IS_RAISED,
    AN_ODD_RECORD_IS_WRITTEN,
    THE_CHECK_BACK_ENDS_A_TRANSACTION,
    A_GROUP_MOVES_ON_IN_A_TRANSACTION,
    A_ZOMBIE_IS_FENCED,
    A_COMMIT_IS_IN_DOUBT,
    A_MARKER_IS_WRITTEN_AGAIN,
    A_PREPARED_TRANSACTION_IS_LOADED,
    AN_EPOCH_IS_EXHAUSTED,
    A_PRODUCER_ID_IS_REPLACED,
    AN_ID_EXPIRES,
    A_SEGMENT_ROLLS,
    A_LATER_SEGMENT_HAS_ABORTS,
    A_SNAPSHOT_IS_READ,
    CLIENTS_COME_BEFORE_LOGS_ARE_OPEN,
    A_LOG_IS_WANTED_BEFORE_IT_IS_OPEN,
    TWO_SESSIONS_KEEP,
    TIME_PASSES_OVER_A_TRANSACTION,
    A_KEPT_TRANSACTION_IS_ENDED,
    A_KEPT_TRANSACTION_IS_LOADED,
    A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR,
    A_PREPARED_TRANSACTION_IS_OVERRULED,
    THE_END_OF_A_KEPT_TRANSACTION_IS_REPEATED,
    AN_OLD_PAIR_IS_REFUSED,
    *CLUSTER_SITUATIONS,
    A_TOPIC_IS_CREATED_AGAIN,
    SOMETHING_IS_ACKNOWLEDGED_BY_A_TOPIC_CREATED_AGAIN,
    A_FLUSH_IS_REFUSED,
)

_LATER_SEGMENT: Final = re.compile(r".*/(?!0{20})\d{20}\.(log|txnindex)")
_PREPARED: Final = (2, 3)
_RESERVED_EPOCH: Final = 32767
DAY_MS: Final = 86_400_000


class Lookout:
    """Notes in `World.reached` which situations come up in a world."""

    def __init__(self, world: World, evidence: Evidence, crossings: Crossings) -> None:
        self._cluster = ClusterLookout(world, evidence, crossings)
        self._world = world
        self._evidence = evidence
        self._marked: set[tuple[PartitionHistory, int]] = set()
        self._producer_ids: dict[str, int] = {}
        self._states: dict[str, tuple[int, int]] = {}
        self._kept: dict[str, tuple[StateRecord, int]] = {}
        world.disk_observers.append(self._disk_changed)
        evidence.on_appended.append(self._appended)

    def logged(self, event: str, fields: Mapping[str, Any]) -> None:
        """A broker has logged something."""
        if event == "logs_opened" and fields.get("unopened"):
            self._world.reached[CLIENTS_COME_BEFORE_LOGS_ARE_OPEN] += 1
        if event == "transaction_in_doubt" and fields["age_ms"] > DAY_MS:
            self._world.reached[TIME_PASSES_OVER_A_TRANSACTION] += 1
        situation = _LOGGED.get(event)
        if situation is not None:
            self._world.reached[situation] += 1

    def look_back(self) -> None:
        """In the end, at what passed over the wire."""
        self._cluster.look_back()
        self._look_at_two_phases()
        unanswered: set[tuple[object, ...]] = set()
        for exchange in self._world.trace.exchanges:
            api = ApiKey(exchange.request.api_key)
            for code in set(_error_codes(exchange.response)):
                situation = _ANSWERS.get((api, ErrorCode(code)))
                if situation is not None:
                    self._world.reached[situation] += 1
                if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and len(self._world.brokers) == 1:
                    self._world.reached[A_LOG_IS_WANTED_BEFORE_IT_IS_OPEN] += 1
            if api is ApiKey.PRODUCE and exchange.response is not None:
                self._look_for_duplicates(exchange)
            if api is ApiKey.END_TXN and exchange.request.committed:
                request = exchange.request
                commit = exchange.client, request.transactional_id, request.producer_id, request.producer_epoch
                if commit in unanswered:
                    self._world.reached[A_COMMIT_IS_IN_DOUBT] += 1
                if exchange.response is None:
                    unanswered.add(commit)
        for broker in self._world.brokers.values():
            if any(path.endswith(".snapshot") for path in broker.disk.read_paths):
                self._world.reached[A_SNAPSHOT_IS_READ] += 1

    def _look_for_duplicates(self, exchange: Exchange) -> None:
        offsets = {
            (topic.name, answer.index): answer.base_offset
            for topic in exchange.response.responses
            for answer in topic.partition_responses
            if answer.error_code == ErrorCode.NONE
        }
        for topic in exchange.request.topic_data:
            for part in topic.partition_data:
                history = self._evidence.of(TopicPartition(topic.name, part.index))
                offset = offsets.get((topic.name, part.index))
                if history is None or offset is None or read_header(part.records).base_sequence < 0:
                    continue
                batch = history.batch_at(offset)
                if batch is not None and batch.at_s < exchange.sent_s:
                    self._world.reached[A_DUPLICATE_IS_ACKNOWLEDGED] += 1

    def _disk_changed(self, _: SimulatedBroker, operation: Operation) -> None:
        found = _LATER_SEGMENT.fullmatch(operation.path)
        if found is not None and operation.kind in ("open", "append"):
            self._world.reached[A_SEGMENT_ROLLS if found[1] == "log" else A_LATER_SEGMENT_HAS_ABORTS] += 1

    def _appended(self, history: PartitionHistory, batch: StoredBatch) -> None:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            for record in self._evidence.transactions.of_batch(batch):
                self._note_state(record.transactional_id, record.value)
                self._note_kept(record)
        elif batch.is_control:
            if (history, batch.producer_id) in self._marked:
                self._world.reached[A_MARKER_IS_WRITTEN_AGAIN] += 1
            self._marked.add((history, batch.producer_id))
        else:
            self._marked.discard((history, batch.producer_id))

    def _note_state(self, transactional_id: str, value: Any) -> None:
        reached = self._world.reached
        if value is None:
            reached[AN_ID_EXPIRES] += 1
            self._producer_ids.pop(transactional_id, None)
            return
        if value.producer_epoch == _RESERVED_EPOCH:
            reached[AN_EPOCH_IS_EXHAUSTED] += 1
        if self._producer_ids.setdefault(transactional_id, value.producer_id) != value.producer_id:
            reached[A_PRODUCER_ID_IS_REPLACED] += 1
            self._producer_ids[transactional_id] = value.producer_id
        start_count = sum(broker.start_count for broker in self._world.brokers.values())
        state, started_at = self._states.get(transactional_id, (0, 0))
        if state in _PREPARED and start_count > started_at:
            reached[A_PREPARED_TRANSACTION_IS_LOADED] += 1
        self._states[transactional_id] = value.transaction_status, start_count

    def _note_kept(self, record: StateRecord) -> None:
        before, started_at = self._kept.pop(record.transactional_id, (None, 0))
        start_count = sum(broker.start_count for broker in self._world.brokers.values())
        if before is not None and start_count > started_at:
            self._world.reached[A_KEPT_TRANSACTION_IS_LOADED] += 1
        if record.is_kept and record.state == ONGOING:
            if before is not None:
                self._world.reached[TWO_SESSIONS_KEEP] += 1
            self._kept[record.transactional_id] = record, start_count

    def _look_at_two_phases(self) -> None:
        """Which sessions asked again for the end of what they kept, and which asked with an old pair."""
        keeping = {
            (transaction.transactional_id, *transaction.kept_by)
            for transaction in self._evidence.transactions.all()
            if transaction.kept_by is not None
        }
        answered: set[tuple[object, ...]] = set()
        for exchange in self._world.trace.exchanges:
            request, response = exchange.request, exchange.response
            if isinstance(request, EndTxnRequest) and keeping:
                session = request.transactional_id, request.producer_id, request.producer_epoch
                if session in answered and response is not None and response.error_code == ErrorCode.NONE:
                    self._world.reached[THE_END_OF_A_KEPT_TRANSACTION_IS_REPEATED] += 1
                if session in keeping:
                    answered.add(session)
            elif isinstance(request, InitProducerIdRequest) and request.producer_id >= 0 and response is not None:
                order = self._evidence.sent_order.get(exchange.number, 0)
                states = self._evidence.transactions.states_between(request.transactional_id or "", order, order)
                if response.error_code == ErrorCode.PRODUCER_FENCED and states == {ONGOING}:
                    self._world.reached[AN_OLD_PAIR_IS_REFUSED] += 1


def _error_codes(message: Any) -> Iterator[int]:
    """All of them, at any depth."""
    for name in ("error_code", "partition_error_code"):
        code = getattr(message, name, 0)
        if code:
            yield code
    for name in _LISTS:
        for part in getattr(message, name, None) or ():
            yield from _error_codes(part)


_LISTS: Final = (
    "responses",
    "partition_responses",
    "topics",
    "partitions",
    "results_by_topic_v3_and_below",
    "results_by_partition",
)
