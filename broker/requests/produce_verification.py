"""Before a batch may open a transaction on a partition, the transaction coordinator must know of it: how Produce asks,
what it makes of the answer, and how the requests of a producer keep their order meanwhile.

Source: KIP-890; Kafka's ReplicaManager.maybeSendPartitionsToTransactionCoordinator and AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.api import Services
from fencepost.protocol.errors import ErrorCode

FIRST_VERSION_WITH_ABORTABLE_ERROR = 11
FIRST_VERSION_OF_TRANSACTION_VERSION_2 = 12

NOT_CONFIRMED_MESSAGE = "The transaction coordinator did not confirm the partition."

_ALL_CONFIRMED = frozenset({ErrorCode.NONE})
_RETRIED_BY_EVERY_CLIENT = ErrorCode.NOT_ENOUGH_REPLICAS  # at once and without asking for metadata first
_PRODUCE_ERRORS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NETWORK_EXCEPTION: _RETRIED_BY_EVERY_CLIENT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRIED_BY_EVERY_CLIENT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRIED_BY_EVERY_CLIENT,
    ErrorCode.NOT_COORDINATOR: _RETRIED_BY_EVERY_CLIENT,
}


def produce_error(error: ErrorCode, version: int) -> ErrorCode:
    """What a Produce of this version answers for an error of the transaction coordinator."""
    if error is ErrorCode.NONE:
        return error
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_OF_TRANSACTION_VERSION_2:
        return _RETRIED_BY_EVERY_CLIENT
    return _PRODUCE_ERRORS.get(error, error)


def verify(
    services: Services,
    topic_partitions: Sequence[TopicPartition],
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    version: int,
) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
    """Have the coordinator confirm that the partitions belong to the producer's transaction; from Produce 12 on, have
    it add them.

    With CONCURRENT_TRANSACTIONS the markers of the last transaction are still on their way. A client of transaction
    version 2 has nothing to wait for between its transactions, so the broker tries again for it, for a short while.
    Returns Produce's own error per partition, NONE where the batch may be appended; it is finished at once only where
    all of them may be.
    """
    add = version >= FIRST_VERSION_OF_TRANSACTION_VERSION_2
    request = partial(
        services.verifier.verify,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        add=add,
    )
    begun = request(topic_partitions=topic_partitions)
    if isinstance(begun, eager.Finished) and _ALL_CONFIRMED.issuperset(begun.result.values()):
        return begun
    return _verify_with_retries(services, topic_partitions, begun, request if add else None, version)


async def _verify_with_retries(
    services: Services,
    topic_partitions: Sequence[TopicPartition],
    begun: eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]],
    request: Callable[..., eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]] | None,
    version: int,
) -> dict[TopicPartition, ErrorCode]:
    """Wait for the answer; with `request`, ask again about partitions whose markers are on their way."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    errors = dict(await begun)
    while request is not None:
        waiting = [name for name in topic_partitions if errors[name] is ErrorCode.CONCURRENT_TRANSACTIONS]
        if not waiting:
            break
        settings = services.settings
        backoff_s = settings.add_partitions_to_txn_retry_backoff_ms / 1000
        max_wait_ms = min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)
        if loop.time() + backoff_s > begun_s + max_wait_ms / 1000:
            break
        await asyncio.sleep(backoff_s)
        errors |= await request(topic_partitions=waiting)
    return {name: produce_error(errors[name], version) for name in topic_partitions}


def enter_verification_queue(services: Services, producer_id: int, started: asyncio.Future[Any]) -> Callable[[], None]:
    """Let the later requests of a producer wait behind one that is being verified, until what is returned is called or
    `started`, which verifies and appends, is done.
    """
    waiting = services.produce_verifications
    place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting[producer_id] = place

    def leave_queue(_: object = None) -> None:
        if not place.done():
            place.set_result(None)
        if waiting.get(producer_id) is place:
            del waiting[producer_id]

    started.add_done_callback(leave_queue)
    return leave_queue
