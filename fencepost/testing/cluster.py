"""A cluster as a test's helpers see it, over the wire: topics, records, transactions, groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from fencepost.client.plans import PAUSE_S, RETRIED, Address
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.consumer_protocol import decode_assignment
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.record import Record as StoredRecord
from fencepost.protocol.record_batch import (
    build_batch,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)
from fencepost.protocol.schema import DecodeError
from fencepost.testing.errors import MisuseError, RefusedError
from fencepost.testing.results import Group, Member, Partition, Record, Transaction
from fencepost.testing.wire import TIMEOUT_S, WireClient

EARLIEST: Final = -2
LATEST: Final = -1
FETCH_BYTES: Final = 16 * 1024 * 1024
PRODUCE_TIMEOUT_MS: Final = 30_000
INTERNAL: Final = "__"
ENDING_STATES: Final = ["PrepareCommit", "PrepareAbort"]
ENDING_S: Final = 5.0


class Cluster:
    """The brokers behind an address. All methods raise ConnectionError, TimeoutError and RefusedError."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.client = WireClient(bootstrap, timeout_s=timeout_s)
        self._timeout_s = timeout_s

    def close(self) -> None:
        self.client.close()

    # Topics

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Raises RefusedError, such as TOPIC_ALREADY_EXISTS."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        (result,) = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=PRODUCE_TIMEOUT_MS)).topics
        _check(result.error_code, f"topic {name!r}", result.error_message)

    def delete_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        if wanted:
            self.client.call(
                DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name) for name in wanted],
                    topic_names=wanted,
                    timeout_ms=PRODUCE_TIMEOUT_MS,
                )
            )

    def delete_topic(self, name: str) -> None:
        """Raises RefusedError."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=PRODUCE_TIMEOUT_MS
        )
        (result,) = self.client.call(request).responses
        _check(result.error_code, f"topic {name!r}", None)

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, without the internal ones."""
        found = self.client.metadata()
        return {
            topic.name: len(topic.partitions)
            for topic in found.topics
            if topic.name and not topic.is_internal and not topic.name.startswith(INTERNAL)
        }

    def leaders(self, topic: str) -> dict[int, Address] | None:
        """The leader of each partition; None if there is no such topic. Waits for leaders that are being elected."""
        give_up_at_s = time.monotonic() + self._timeout_s
        while True:
            reply = self.client.metadata([topic])
            addresses = {broker.node_id: Address(broker.host, broker.port) for broker in reply.brokers}
            (found,) = reply.topics
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            leaders = {
                partition.partition_index: addresses[partition.leader_id]
                for partition in found.partitions
                if partition.leader_id in addresses
            }
            if found.error_code == ErrorCode.NONE and len(leaders) == len(found.partitions):
                return leaders
            if time.monotonic() > give_up_at_s:
                _check(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r}", None)
            time.sleep(PAUSE_S)

    # Records

    def produce(self, topic: str, partition: int, leader: Address, records: list[StoredRecord]) -> int:
        """Append records as one batch; return the offset of the first."""
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=partition, records=memoryview(build_batch(records)))],
                )
            ],
        )
        result = self._settled(request, leader, lambda reply: reply.responses[0].partition_responses)
        _check(result.error_code, f"{topic}-{partition}", result.error_message)
        offset: int = result.base_offset
        return offset

    def offset(self, where: Partition, leader: Address, mark: int, *, committed: bool) -> int:
        """The earliest or latest offset of a partition; with `committed`, the latest that is read_committed."""
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(
                    name=where.topic, partitions=[ListOffsetsPartition(partition_index=where.partition, timestamp=mark)]
                )
            ],
            timeout_ms=PRODUCE_TIMEOUT_MS,
        )
        result = self._settled(request, leader, lambda reply: reply.topics[0].partitions)
        _check(result.error_code, str(where), None)
        offset: int = result.offset
        return offset

    def _settled(self, request: Any, leader: Address, results_of: Callable[[Any], list[Any]]) -> Any:
        """The result of a request about one partition; asks again for as long as its error may pass."""
        give_up_at_s = time.monotonic() + self._timeout_s
        while True:
            (result,) = results_of(self.client.call(request, leader))
            if result.error_code not in RETRIED or time.monotonic() > give_up_at_s:
                return result
            time.sleep(PAUSE_S)

    def read(self, where: Partition, leader: Address, start: int, *, committed: bool) -> Iterator[Record]:
        """Yield the records from an offset to the end at the time of the call; aborted ones only if not `committed`."""
        end = self.offset(where, leader, LATEST, committed=committed)
        position = max(start, self.offset(where, leader, EARLIEST, committed=False))
        aborted: dict[int, int] = {}  # first offset of each aborted transaction, by producer id
        while position < end:
            request = FetchRequest(
                max_wait_ms=1000,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                isolation_level=int(committed),
                topics=[
                    FetchTopic(
                        topic=where.topic,
                        partitions=[
                            FetchPartition(
                                partition=where.partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES
                            )
                        ],
                    )
                ],
            )
            reply = self.client.call(request, leader)
            _check(reply.error_code, str(where), None)
            (found,) = reply.responses[0].partitions
            _check(found.error_code, str(where), None)
            waiting = sorted(
                (transaction.first_offset, transaction.producer_id) for transaction in found.aborted_transactions or ()
            )
            before = position
            for batch in iterate_batches(memoryview(found.records or b"")):
                header = batch.header
                while waiting and waiting[0][0] <= header.base_offset + header.last_offset_delta:
                    first_offset, producer_id = waiting.pop(0)
                    aborted[producer_id] = first_offset
                next_offset = header.base_offset + header.last_offset_delta + 1
                if header.is_control:
                    if read_end_transaction_marker(batch) is not None:
                        aborted.pop(header.producer_id, None)
                elif not (committed and header.is_transactional and header.producer_id in aborted):
                    for offset, timestamp_ms, key, value, headers in read_records(batch):
                        if position <= offset < end:
                            yield Record(where.topic, where.partition, offset, timestamp_ms, key, value, headers)
                position = max(position, next_offset)
            if position == before:
                return  # the log was cut meanwhile

    # Transactions

    def transactional_ids(self) -> dict[str, str]:
        """The state of each transactional id, of all coordinators."""
        found = {}
        for address in self._brokers():
            for state in self.client.call(ListTransactionsRequest(), address).transaction_states:
                found[state.transactional_id] = state.transaction_state
        return found

    def wait_for_ends(self) -> None:
        """Wait until no transaction is being ended, up to ENDING_S seconds.

        A coordinator confirms an end as soon as it has decided it; the markers that show records and offsets follow.
        """
        give_up_at_s = time.monotonic() + ENDING_S
        request = ListTransactionsRequest(state_filters=ENDING_STATES)
        while time.monotonic() < give_up_at_s:
            try:
                replies = [self.client.call(request, address) for address in self._brokers()]
            except MisuseError:
                return  # Kafka before 3.0 cannot tell
            if not any(
                reply.transaction_states or reply.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                for reply in replies
            ):
                return
            time.sleep(PAUSE_S)

    def transaction(self, transactional_id: str) -> Transaction | None:
        reply = self.client.coordinated(
            CoordinatorKind.TRANSACTION,
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            lambda answered: answered.transaction_states[0].error_code,
        )
        (found,) = reply.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        _check(found.error_code, f"transactional id {transactional_id!r}", None)
        return Transaction(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms if found.topics and found.transaction_start_time_ms >= 0 else None,
            tuple(Partition(topic.topic, index) for topic in found.topics for index in topic.partitions),
        )

    def fence(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Begin a session as a new producer of a transactional id does; return producer id and epoch."""
        reply = self.client.coordinated(
            CoordinatorKind.TRANSACTION,
            transactional_id,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, forced=True),
            lambda answered: answered.error_code,
        )
        _check(reply.error_code, f"transactional id {transactional_id!r}", None)
        return reply.producer_id, reply.producer_epoch

    # Groups

    def groups(self) -> dict[str, tuple[str, str]]:
        """Kind and state of each group, of all coordinators."""
        found = {}
        for address in self._brokers():
            for group in self.client.call(ListGroupsRequest(), address).groups:
                found[group.group_id] = (group.group_type.lower() or "classic", group.group_state)
        return found

    def group(self, group_id: str) -> Group | None:
        """A group with its offsets and lag."""
        listed = self.groups().get(group_id)
        if listed is None:
            return None
        kind, state = listed
        members: tuple[Member, ...] = ()
        if kind == "consumer":
            state, members = self._consumer_group(group_id)
        elif kind == "classic":
            state, members = self._classic_group(group_id)
        offsets = self.offsets(group_id) if kind in ("consumer", "classic") else {}
        lag = {}
        for where, offset in offsets.items():
            leader = (self.leaders(where.topic) or {}).get(where.partition)
            if leader is not None:
                lag[where] = sum(1 for _ in self.read(where, leader, offset, committed=True))
        return Group(group_id, kind, state, members, offsets, lag)

    def offsets(self, group_id: str) -> dict[Partition, int]:
        """The committed offsets of a group."""
        reply = self.client.coordinated(
            CoordinatorKind.GROUP,
            group_id,
            OffsetFetchRequest(group_id, None, [OffsetFetchRequestGroup(group_id=group_id, topics=None)]),
            lambda answered: _of_group(answered).error_code,
        )
        found = _of_group(reply)
        _check(found.error_code, f"group {group_id!r}", None)
        return {
            Partition(topic.name, partition.partition_index): partition.committed_offset
            for topic in found.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    def set_offset(self, group_id: str, where: Partition, offset: int) -> None:
        """Commit an offset as no member of a group. Raises RefusedError, such as UNKNOWN_MEMBER_ID."""
        (topic,) = self.client.metadata([where.topic]).topics
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=where.topic,
                    topic_id=topic.topic_id,
                    partitions=[OffsetCommitRequestPartition(partition_index=where.partition, committed_offset=offset)],
                )
            ],
        )
        reply = self.client.coordinated(
            CoordinatorKind.GROUP, group_id, request, lambda answered: answered.topics[0].partitions[0].error_code
        )
        _check(reply.topics[0].partitions[0].error_code, f"group {group_id!r}, {where}", None)

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete the groups that are empty; leave the others."""
        for group_id in group_ids:
            self.client.coordinated(
                CoordinatorKind.GROUP,
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                lambda answered: answered.results[0].error_code,
            )

    def _classic_group(self, group_id: str) -> tuple[str, tuple[Member, ...]]:
        reply = self.client.coordinated(
            CoordinatorKind.GROUP,
            group_id,
            DescribeGroupsRequest(groups=[group_id]),
            lambda answered: answered.groups[0].error_code,
        )
        (found,) = reply.groups
        members = tuple(
            Member(member.member_id, member.client_id, tuple(_assigned(bytes(member.member_assignment))))
            for member in found.members
        )
        return found.group_state, members

    def _consumer_group(self, group_id: str) -> tuple[str, tuple[Member, ...]]:
        reply = self.client.coordinated(
            CoordinatorKind.GROUP,
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            lambda answered: answered.groups[0].error_code,
        )
        (found,) = reply.groups
        members = tuple(
            Member(
                member.member_id,
                member.client_id,
                tuple(
                    Partition(topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in found.members
        )
        return found.group_state, members

    def _brokers(self) -> list[Address]:
        return [Address(broker.host, broker.port) for broker in self.client.metadata([]).brokers]


def _of_group(reply: Any) -> Any:
    """The part of an answer to OffsetFetch about its one group: from version 8 on in a list."""
    return reply.groups[0] if reply.groups else reply


def _assigned(assignment: bytes) -> Iterator[Partition]:
    if not assignment:
        return
    try:
        decoded = decode_assignment(assignment)
    except DecodeError:
        return  # of another protocol type than consumers'
    for topic in decoded.assigned_partitions:
        for index in topic.partitions:
            yield Partition(topic.topic, index)


def _check(error: Any, about: str, message: str | None) -> None:
    if error != ErrorCode.NONE:
        name = ErrorCode(error).name
        raise RefusedError(name, f"{about}: {name}" + (f": {message}" if message else ""))
