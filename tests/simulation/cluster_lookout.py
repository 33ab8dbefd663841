"""Which situations come up between the brokers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.simulation.crossing import Crossings
from tests.simulation.situations import (
    A_COORDINATOR_MOVES_AFTER_PREPARE,
    A_COORDINATOR_MOVES_IN_A_TRANSACTION,
    A_DEPOSED_BROKER_CANNOT_WRITE,
    A_DEPOSED_COORDINATORS_MARKER_IS_REFUSED,
    A_GROUP_MOVES_IN_A_TRANSACTION,
    A_LEADER_MOVES_IN_A_TRANSACTION,
    A_MARKER_COMES_LATE_AGAIN,
    A_MARKER_CROSSES,
    A_MARKER_IS_SENT_TO_ANOTHER_BROKER,
    A_PARTITION_IS_ADDED_ACROSS,
    A_PARTITION_IS_VERIFIED_ACROSS,
    A_QUESTION_FINDS_NO_COORDINATOR,
    A_REQUEST_TO_A_BROKER_IS_LOST,
    AN_ADDITION_COMES_LATE_AGAIN,
    OTHERS_TAKE_OVER,
)
from tests.simulation.trace import Exchange
from tests.support.allowed_replies import error_codes

if TYPE_CHECKING:
    from tests.simulation.invariants.evidence import Evidence
    from tests.simulation.world import World

CLUSTER_SITUATIONS: Final = (
    OTHERS_TAKE_OVER,
    A_DEPOSED_BROKER_CANNOT_WRITE,
    A_MARKER_CROSSES,
    A_PARTITION_IS_ADDED_ACROSS,
    A_PARTITION_IS_VERIFIED_ACROSS,
    A_MARKER_IS_SENT_TO_ANOTHER_BROKER,
    A_QUESTION_FINDS_NO_COORDINATOR,
    A_REQUEST_TO_A_BROKER_IS_LOST,
    A_MARKER_COMES_LATE_AGAIN,
    AN_ADDITION_COMES_LATE_AGAIN,
    A_DEPOSED_COORDINATORS_MARKER_IS_REFUSED,
    A_COORDINATOR_MOVES_IN_A_TRANSACTION,
    A_COORDINATOR_MOVES_AFTER_PREPARE,
    A_LEADER_MOVES_IN_A_TRANSACTION,
    A_GROUP_MOVES_IN_A_TRANSACTION,
)


class ClusterLookout:
    """Notes them in `World.reached`."""

    def __init__(self, world: World, evidence: Evidence, crossings: Crossings) -> None:
        self._world = world
        self._evidence = evidence
        world.placement_observers.append(self._moved)
        crossings.on_repeated.append(self._repeated)

    def look_back(self) -> None:
        """In the end, at what passed between brokers."""
        hosts = {broker.host for broker in self._world.brokers.values()}
        for exchange in self._world.trace.exchanges:
            if exchange.client in hosts:
                for situation in set(_situations(exchange)):
                    self._world.reached[situation] += 1

    def _repeated(self, request: Any) -> None:
        if isinstance(request, WriteTxnMarkersRequest):
            self._world.reached[A_MARKER_COMES_LATE_AGAIN] += 1
        elif isinstance(request, AddPartitionsToTxnRequest) and request.transactions:
            self._world.reached[AN_ADDITION_COMES_LATE_AGAIN] += 1

    def _moved(self, topic_partition: TopicPartition, _: int, target_id: int) -> None:
        reached = self._world.reached
        if topic_partition.topic == TRANSACTION_STATE_TOPIC:
            transactions = self._evidence.transactions
            for transactional_id, records in transactions.records.items():
                current = transactions.current(transactional_id)
                if records[-1].partition == topic_partition.partition and current is not None:
                    prepared = current.prepared
                    reached[
                        A_COORDINATOR_MOVES_IN_A_TRANSACTION if prepared is None else A_COORDINATOR_MOVES_AFTER_PREPARE
                    ] += 1
            return
        history = self._evidence.histories.get((target_id, topic_partition))
        if history is not None and history.open:
            is_group = topic_partition.topic == CONSUMER_OFFSETS_TOPIC
            reached[A_GROUP_MOVES_IN_A_TRANSACTION if is_group else A_LEADER_MOVES_IN_A_TRANSACTION] += 1


def _situations(exchange: Exchange) -> Iterator[str]:
    request, response = exchange.request, exchange.response
    if response is None:
        yield A_REQUEST_TO_A_BROKER_IS_LOST
        return
    errors = set(error_codes(response))
    if isinstance(request, WriteTxnMarkersRequest):
        if errors == {ErrorCode.NONE}:
            yield A_MARKER_CROSSES
        if errors & {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            yield A_MARKER_IS_SENT_TO_ANOTHER_BROKER
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in errors:
            yield A_DEPOSED_COORDINATORS_MARKER_IS_REFUSED
    elif isinstance(request, AddPartitionsToTxnRequest):
        if ErrorCode.NOT_COORDINATOR in errors:
            yield A_QUESTION_FINDS_NO_COORDINATOR
        elif errors == {ErrorCode.NONE}:
            for transaction in request.transactions:
                yield A_PARTITION_IS_VERIFIED_ACROSS if transaction.verify_only else A_PARTITION_IS_ADDED_ACROSS
