"""What can be asked of a group of whatever kind: lists, descriptions and heartbeats of other kinds, and its offsets, in
transactions and without, at every version.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from fencepost.protocol.messages.transactions import AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from tests.differences.exchange import ATTEMPTS, PAUSE_S, TRANSACTION
from tests.differences.random_sequences.steps import SlicedWork

TIMEOUT_MS: Final = 600_000
PASSER_BY: Final = "passer-by"
STATES: Final = (
    "Empty",
    "Stable",
    "Assigning",
    "reconciling",
    "PreparingRebalance",
    "CompletingRebalance",
    "Dead",
    "?",
)
TYPES: Final = ("classic", "Consumer", "share", "streams", "?")
FIRST_LIST_BY_STATE, FIRST_LIST_BY_TYPE = 4, 5
FIRST_FETCH_OF_GROUPS: Final = 8
FIRST_FETCH_OF_ALL: Final = 2
FIRST_BY_ID: Final = 10
LAST_FOR_AN_ADDED_GROUP: Final = 4  # version of TxnOffsetCommit; later ones add the group to the transaction
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)


class Wanted(NamedTuple):
    """Partitions of a topic whose offsets are fetched."""

    name: str
    topic_id: bytes
    partitions: list[int]


class AnyGroup:
    """One group, as clients see it that do not know its kind."""

    def __init__(self, steps: SlicedWork, group: str) -> None:
        self._steps = steps
        self._exchange = steps.exchange
        self._random = steps.random
        self._group = group
        self._transactional_id = self._exchange.name("transaction")
        self._producer: tuple[int, int] | None = None

    # What it is

    def list_it(self) -> None:
        """Whether it passes filters; of the others in the list nothing is said."""
        version = self._steps.version(ListGroupsRequest)
        request = ListGroupsRequest()
        if version >= FIRST_LIST_BY_STATE and self._steps.happens(0.6):
            request.states_filter = self._random.sample(STATES, self._random.randint(1, 3))
        if version >= FIRST_LIST_BY_TYPE and self._steps.happens(0.6):
            request.types_filter = self._random.sample(TYPES, self._random.randint(1, 2))
        reply = self._exchange.call(request, version)
        shown = [
            [group.protocol_type, group.group_state, group.group_type]
            for group in reply.groups
            if group.group_id == self._group
        ]
        filters = " ".join((*request.states_filter, *request.types_filter)) or "all"
        self._exchange.note(self._steps.situation(f"is it among groups: {filters}"), version, [reply.error_code, shown])

    def describe_as_any(self) -> None:
        request_type = self._random.choice(
            (
                ConsumerGroupDescribeRequest,
                DescribeGroupsRequest,
                ShareGroupDescribeRequest,
                StreamsGroupDescribeRequest,
            )
        )
        version = self._steps.version(request_type)
        self._steps.ask(f"{request_type.__name__} for it", request_type([self._group]), version)

    def pass_by(self, *strange: type[Any]) -> None:
        """Somebody takes it for a group of another kind: with one of these requests, none of which it serves."""
        request_type = self._random.choice(strange)
        epoch = self._random.choice((0, 1, -1))
        request: Any
        if request_type is JoinGroupRequest:
            protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]
            request = JoinGroupRequest(
                self._group,
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                protocol_type="consumer",
                protocols=protocols,
            )
        elif request_type is SyncGroupRequest:
            request = SyncGroupRequest(self._group, 1, PASSER_BY)
        elif request_type is HeartbeatRequest:
            request = HeartbeatRequest(self._group, 1, PASSER_BY)
        elif request_type is LeaveGroupRequest:
            request = LeaveGroupRequest(self._group, PASSER_BY, [MemberIdentity(PASSER_BY)])
        else:
            assert request_type in (
                ConsumerGroupHeartbeatRequest,
                ShareGroupHeartbeatRequest,
                StreamsGroupHeartbeatRequest,
            )
            request = request_type(self._group, PASSER_BY, epoch)
            if request_type is not StreamsGroupHeartbeatRequest:
                request.subscribed_topic_names = ["nothing"]
        lowest = 1 if request_type is ConsumerGroupHeartbeatRequest else 0
        version = self._steps.version(request_type, lowest=lowest)
        self._steps.ask(f"{request_type.__name__} {epoch} of a passer-by", request, version)

    # Its offsets

    def fetch_offsets(
        self, requester: str, wanted: Sequence[Wanted], member_id: str | None = None, member_epoch: int = -1
    ) -> None:
        version = self._steps.version(OffsetFetchRequest)
        is_all = version >= FIRST_FETCH_OF_ALL and self._steps.happens(0.2)
        is_stable = version >= 7 and self._steps.happens(0.3)
        if version < FIRST_FETCH_OF_GROUPS:
            topics = [OffsetFetchRequestTopic(each.name, each.partitions) for each in wanted]
            request = OffsetFetchRequest(self._group, None if is_all else topics, require_stable=is_stable)
        else:
            by_id = [
                OffsetFetchRequestTopics(each.name if version < FIRST_BY_ID else "", each.topic_id, each.partitions)
                for each in wanted
            ]
            group = OffsetFetchRequestGroup(self._group, member_id, member_epoch, None if is_all else by_id)
            request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
        what = "all offsets" if is_all else "the offsets"
        self._steps.ask(f"{requester} fetches {what}{' that are stable' if is_stable else ''}", request, version)

    def commit_in_transaction(
        self, committer: str, topic: str, partition: int, member_id: str, epoch: int, instance: str | None = None
    ) -> None:
        """One offset, in its own transaction that is committed or aborted, and over when this returns."""
        if self._producer is None:
            self._exchange.find_coordinator(self._transactional_id, TRANSACTION)
            producer = self._exchange.call(InitProducerIdRequest(self._transactional_id, TIMEOUT_MS), 4, retry=BUSY)
            self._producer = producer.producer_id, producer.producer_epoch
        transaction = (self._transactional_id, *self._producer)
        self._exchange.call(AddOffsetsToTxnRequest(*transaction, self._group), 3, retry=BUSY)
        lowest = 0 if self._steps.happens(0.2) else 3
        version = self._steps.version(TxnOffsetCommitRequest, lowest=lowest, highest=LAST_FOR_AN_ADDED_GROUP)
        offset = self._random.randint(0, 99)
        committed = [TxnOffsetCommitRequestPartition(partition, offset)]
        request = TxnOffsetCommitRequest(
            self._transactional_id,
            self._group,
            *self._producer,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(topic, partitions=committed)],
        )
        base = self._exchange.plain_text(topic)
        what = f"{committer} commits {offset} of {partition} of {base} in a transaction"
        self._steps.ask(what, request, version, retry=BUSY)
        self._exchange.call(EndTxnRequest(*transaction, self._steps.happens(0.7)), 4, retry=BUSY)
        for _ in range(ATTEMPTS):
            described = self._exchange.call(DescribeTransactionsRequest([self._transactional_id]), 0)
            if described.transaction_states[0].transaction_state.startswith(("Complete", "Empty")):
                break
            time.sleep(PAUSE_S)
