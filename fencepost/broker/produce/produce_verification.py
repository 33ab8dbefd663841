"""Verification of Produce: the transaction coordinator confirms a partition before a batch opens a transaction on it.

Also the mapping of its errors to Produce's, and the queue that keeps the requests of a producer in order meanwhile.

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
    """Map an error of the transaction coordinator to that of a Produce of this version."""
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
    """Have the coordinator confirm that the partitions belong to the producer's transaction; from Produce 12 on, add
    them.

    With CONCURRENT_TRANSACTIONS the markers of the last transaction are still being written. A client of transaction
    version 2 does not wait for them between its transactions, so the broker retries for it, up to
    `add.partitions.to.txn.retry.backoff.max.ms`. Returns Produce's own error per partition, NONE where the batch may be
    appended; it is finished at once only if that is so for all of them.
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
    """Wait for the answer; with `request`, retry the partitions whose markers are still being written."""
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


def enter_verification_queue(
    services: Services, transactional_id: str, started: asyncio.Future[Any]
) -> Callable[[], None]:
    """Make later requests of a transactional id wait for one that is being verified, until the returned function is
    called or `started`, which verifies and appends, is done. By producer id, which anyone may name, strangers would
    hold a producer up.
    """
    waiting = services.verifier.waiting
    place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting[transactional_id] = place

    def leave_queue(_: object = None) -> None:
        if not place.done():
            place.set_result(None)
        if waiting.get(transactional_id) is place:
            del waiting[transactional_id]

    started.add_done_callback(leave_queue)
    return leave_queue
