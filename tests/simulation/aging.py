"""Transactional ids that have seen tens of thousands of transactions before the world begins.

Epochs end at 32766; nobody could wait for that. So a record like the one that the last of those transactions would have
left is put into `__transaction_state` while no broker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.coordination.shard import partition_for_key
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.stored.transaction_state import (
    TransactionLogValue,
    encode_transaction_log_key,
    encode_transaction_log_value,
)
from tests.simulation.broker import SimulatedBroker
from tests.simulation.clients.cluster import FIND_COORDINATOR_VERSION, TRANSACTION, Cluster

TRANSACTION_TIMEOUT_MS: Final = 6_000


async def age(
    brokers: Sequence[SimulatedBroker],
    holder: Callable[[TopicPartition], SimulatedBroker],
    witness: Cluster,
    epochs: Mapping[str, int],
    now_ms: int,
) -> None:
    """Give transactional ids the epochs that they have reached; the brokers are started anew for it.

    holder: on whose disk a partition is.
    The producer ids come from the broker: those after the one that it hands out are lost to the restart, and so free.
    """
    if not epochs:
        return
    first = brokers[0]
    asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=list(epochs))
    while (await witness.send(first.address, asked, FIND_COORDINATOR_VERSION)).coordinators[0].error_code:
        await witness.back_off()
    partition_count = int(first.settings["transaction.state.log.num.partitions"])
    names = [TopicPartition(TRANSACTION_STATE_TOPIC, partition) for partition in range(partition_count)]
    while not all(holder(name).disk.exists_now(_directory(holder(name), name)) for name in names):
        await witness.back_off()  # another process has yet to hear of the topic
    identity = await witness.send(first.address, InitProducerIdRequest(transactional_id=None), 4)
    for broker in brokers:
        broker.crash()
    first.world.aged.update(epochs)
    records: dict[int, list[Record]] = {}
    for number, (transactional_id, epoch) in enumerate(epochs.items(), 1):
        value = TransactionLogValue(
            producer_id=identity.producer_id + number,
            producer_epoch=epoch,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            transaction_status=TransactionState.EMPTY,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=-1,
        )
        in_partition = records.setdefault(partition_for_key(transactional_id, partition_count), [])
        key = encode_transaction_log_key(transactional_id)
        in_partition.append(Record(len(in_partition), now_ms, key, encode_transaction_log_value(value)))
    for partition, in_partition in records.items():
        topic_partition = TopicPartition(TRANSACTION_STATE_TOPIC, partition)
        broker = holder(topic_partition)
        path = f"{_directory(broker, topic_partition)}/{0:020d}.log"
        broker.disk.replace_content(path, bytes(build_batch(in_partition, partition_leader_epoch=0)))
    witness.close()
    for broker in brokers:
        await broker.start()


def _directory(broker: SimulatedBroker, topic_partition: TopicPartition) -> str:
    return f"{broker.data_directory}/{topic_partition}"
