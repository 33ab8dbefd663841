"""DescribeTransactions and ListTransactions: descriptions of transactions for administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.caught_up import caught_up, may_have_missed
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.needed_rights import DESCRIBE, TOPIC, TRANSACTIONAL_ID, named, only
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import DISPLAY_NAMES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    TopicData,
)

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


FEWEST_IN_SLICES = 500
"""From this number of transactions on, the reply is built in slices: fewer take a few ms."""
TRANSACTIONS_PER_STEP = 100

# States that Kafka has in memory only: valid in filters; no transaction here has them.
_STATES_NEVER_SHOWN = frozenset({"Dead", "PrepareEpochFence"})


def describe_transactions_failed(
    request: DescribeTransactionsRequest, error: ErrorCode, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsTransactionState(error_code=error, transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


def _with_described_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for transaction in response.transaction_states:
        transaction.topics = [topic for topic in transaction.topics if rights.may(DESCRIBE, TOPIC, topic.topic)]
        yield


@api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    versions="0",
    rights=NeededRights(
        items=(Items("transactional_ids", "transaction_states", named(DESCRIBE, TRANSACTIONAL_ID), in_order=True),),
        finish=_with_described_topics,
    ),
    errors=COORDINATOR_AWAY | codes("INVALID_REQUEST TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_NOT_FOUND"),
    failed=describe_transactions_failed,
)
def handle_describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Coroutine[Any, Any, SlicedResponse]:
    """Describe state, producer, time-out and partitions of the given transactions.

    With many, each is described as it is when its slice runs.
    """
    transactions = context.services.transactions

    def steps() -> SlicedWork[DescribeTransactionsResponse]:
        states = []
        for transactional_id in request.transactional_ids:
            states.append(_describe(transactions, transactional_id))
            yield
        return DescribeTransactionsResponse(transaction_states=states)

    return build_in_slices(steps()) if len(request.transactional_ids) >= FEWEST_IN_SLICES else run_to_end(steps())


def _describe(transactions: TransactionService, transactional_id: str) -> DescribeTransactionsTransactionState:
    metadata = transactions.find(transactional_id)
    if isinstance(metadata, ErrorCode):
        return DescribeTransactionsTransactionState(error_code=metadata, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribeTransactionsTransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.display_name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


@api(
    ListTransactionsRequest,
    ListTransactionsResponse,
    versions="0-2",
    rights=NeededRights(finish=only("transaction_states", TRANSACTIONAL_ID, "transactional_id")),
    errors=COORDINATOR_AWAY | codes("INVALID_REGULAR_EXPRESSION"),
)
def handle_list_transactions(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse | SlicedResponse]:
    """List the transactions of this coordinator that pass all filters, all as they are at one moment."""
    if may_have_missed(context.services):
        return caught_up(context, lambda: _list(context, request))
    return _list(context, request)


def _list(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[SlicedResponse]:
    matches: Callable[[str], object] | None = None
    if request.transactional_id_pattern:
        matches = _matcher(request.transactional_id_pattern)
        if matches is None:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = DISPLAY_NAMES.intersection(request.state_filters)
    unknown = [name for name in request.state_filters if name not in DISPLAY_NAMES | _STATES_NEVER_SHOWN]
    producer_ids = set(request.producer_id_filters)
    now_ms = context.services.clock.now_ms()

    def passes(metadata: TransactionMetadata) -> bool:
        return (
            (not request.state_filters or metadata.state.display_name in states)
            and (not producer_ids or metadata.producer_id in producer_ids)
            and (request.duration_filter < 0 or _has_run_longer(metadata, request.duration_filter, now_ms))
            and (matches is None or matches(metadata.transactional_id) is not None)
        )

    try:
        # Copied in one step, and immutable: the filtering may run in slices between other requests.
        known = context.services.transactions.transactions()
    except CoordinatorRefusal as refusal:
        return ListTransactionsResponse(error_code=refusal.error)

    def steps() -> SlicedWork[ListTransactionsResponse]:
        shown = []
        for start in range(0, len(known), TRANSACTIONS_PER_STEP):
            shown += [
                ListTransactionsTransactionState(
                    transactional_id=metadata.transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.display_name,
                )
                for metadata in known[start : start + TRANSACTIONS_PER_STEP]
                if passes(metadata)
            ]
            yield
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=shown)

    return build_in_slices(steps()) if len(known) >= FEWEST_IN_SLICES else run_to_end(steps())


def _matcher(pattern: str) -> Callable[[str], object] | None:
    """A full-match function by RE2, as in Kafka, in linear time. None for an invalid pattern."""
    # Imported here: few brokers get this request, and all would pay at startup.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return None
    matcher: Callable[[str], object] = compiled.fullmatch
    return matcher


def _has_run_longer(metadata: TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    return metadata.start_ms >= 0 and now_ms - metadata.start_ms > duration_ms
