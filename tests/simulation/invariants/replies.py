"""Invariant 23: what a broker may say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.broker.handlers.transactions import FIRST_BATCH_VERSION
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.rights import REFUSALS
from tests.simulation.situations import SOMETHING_UNFORESEEN_IS_RAISED
from tests.simulation.trace import Exchange
from tests.support.allowed_replies import ABSENT, allowed_errors, error_codes


class AllowedReplies(Invariant):
    """23. Replies carry only the error codes that are allowed for the request in the states that the transactional id
    went through between question and answer.

    A coordinator that was deposed and does not know it may answer for any state that there has been.
    """

    number = 23

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        api, version = ApiKey(exchange.request.api_key), exchange.version
        found = set(_error_codes(exchange))
        transactional_id = _transactional_id(exchange.request)
        allowed: frozenset[ErrorCode] = frozenset()
        states: set[int | None] = set()
        if transactional_id is None:
            allowed = allowed_errors(api, version)
        else:
            since_order = self.evidence.sent_order[exchange.number]
            if self._may_be_deposed(exchange, transactional_id):
                since_order = 0  # it goes by whatever was true when it was the coordinator
            states = self.evidence.transactions.states_between(transactional_id, since_order, self.evidence.order)
            for state in states:
                allowed |= allowed_errors(api, version, ABSENT if state is None else TransactionState(state))
        if exchange.client.partition("#")[0] in self.evidence.world.secured:
            allowed |= REFUSALS
        if self.evidence.world.reached[SOMETHING_UNFORESEEN_IS_RAISED]:
            allowed |= {ErrorCode.UNKNOWN_SERVER_ERROR}
        forbidden = found - allowed
        if forbidden:
            names = ", ".join(sorted(error.name for error in forbidden))
            where = f" in {sorted(str(state) for state in states)}" if states else ""
            yield self.violation(f"{api.name} version {version} was answered with {names}{where}", exchange)

    def _may_be_deposed(self, exchange: Exchange, transactional_id: str) -> bool:
        last = self.evidence.transactions.last(transactional_id)
        if last is None:
            return False
        home = TopicPartition(TRANSACTION_STATE_TOPIC, last.partition)
        is_elsewhere = self.evidence.is_led_elsewhere(exchange.node_id, home)
        return is_elsewhere or self.evidence.moved_since(home, exchange.sent_s)


def _error_codes(exchange: Exchange) -> Iterator[ErrorCode]:
    response = exchange.response
    if isinstance(response, AddPartitionsToTxnResponse) and exchange.version < FIRST_BATCH_VERSION:
        # The field at the top, which says that all is well, is of later versions only.
        for topic in response.results_by_topic_v3_and_below:
            yield from error_codes(topic)
    else:
        yield from error_codes(response)


def _transactional_id(request: Any) -> str | None:
    if isinstance(request, AddPartitionsToTxnRequest):
        return request.v3_and_below_transactional_id or None
    if isinstance(request, InitProducerIdRequest | AddOffsetsToTxnRequest | EndTxnRequest):
        return request.transactional_id or None
    return None
