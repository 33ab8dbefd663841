"""Targets and batches of a Produce request: the log of each partition, and the checks of a batch that need no log.

Source: KIP-516 (topic ids); Kafka's ProduceRequest.validateRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.produce.produce_append import ProduceRefusal
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    read_header,
)
from fencepost.protocol.schema import Buffer, DecodeError

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.requests.api import Services
    from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13
SMALLEST_BATCH_LENGTH = 14  # of the oldest format


class ProduceTarget(NamedTuple):
    """A partition of a request, and its log. log: None if there is none. error: the reason why there is none."""

    requested: PartitionProduceData
    topic_partition: TopicPartition
    log: PartitionLog | None
    error: ErrorCode


def find_targets(services: Services, request: ProduceRequest, version: int) -> list[ProduceTarget]:
    """Find the logs of a request's partitions, in order."""
    topics = services.topics
    found = []
    for topic in request.topic_data:
        name, error = resolve(topics, topic, version)
        for partition in topic.partition_data:
            topic_partition = TopicPartition(name, partition.index)
            log = topics.log(topic_partition) if error is NO_ERROR else None
            found.append(ProduceTarget(partition, topic_partition, log, error))
    return found


def find_log_again(topics: Topics, target: ProduceTarget) -> PartitionLog | ErrorCode:
    """Find again a log that was missing, failed, deleted or moved away: it may be served now."""
    if target.error is not NO_ERROR:
        return target.error
    log = topics.log(target.topic_partition)
    if log is None:
        return topics.error_of_absent_log(target.topic_partition)
    return ErrorCode.KAFKA_STORAGE_ERROR if log.is_offline else log


def resolve(topics: Topics, topic: TopicProduceData, version: int) -> tuple[str, ErrorCode]:
    """Return the name of a request's topic. Refuses: UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION (internal)."""
    name = topic.name
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        metadata = topics.metadata.get_by_id(topic.topic_id)
        if metadata is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = metadata.name
    # Only its coordinator writes to an internal topic: the coordinator's state would miss a client's records.
    return name, ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


def read_batch(records: Buffer | None, version: int) -> BatchHeader | ProduceRefusal:
    """Read the header of the one batch that a partition's records must be; the log checks everything else."""
    if not records:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, "There is no record batch for this partition.")
    try:
        header = read_header(records)
    except DecodeError:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, "There is only a part of a record batch for this partition.")
    if (
        header.magic == CURRENT_MAGIC
        and header.batch_length + LENGTH_OVERHEAD_BYTES == len(records)
        and (version >= FIRST_VERSION_WITH_ZSTD or header.attributes & CODEC_MASK != Codec.ZSTD)
    ):
        return header
    return _refusal_of(header, records, version)


def _refusal_of(header: BatchHeader, records: Buffer, version: int) -> ProduceRefusal:
    """The error of a batch that is refused without its log; None if there is none."""
    refusal = unreadable(header.batch_length, header.magic)
    if refusal is not None:
        return refusal
    if header.magic != CURRENT_MAGIC:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, f"Only record format 2 is accepted, not {header.magic}.")
    if header.size_bytes != len(records):
        what = "more than one record batch" if header.size_bytes < len(records) else "only a part of a record batch"
        return ProduceRefusal(ErrorCode.INVALID_RECORD, f"There is {what} for this partition.")
    return ProduceRefusal(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce {version} does not know zstd; it came with {FIRST_VERSION_WITH_ZSTD}.",
    )


def unreadable(length: int, magic: int) -> ProduceRefusal | None:
    """The error of records that do not begin like a batch of any format; None if they do."""
    if length < SMALLEST_BATCH_LENGTH:
        return ProduceRefusal(ErrorCode.CORRUPT_MESSAGE, f"No record batch has a length of {length}.")
    if not 0 <= magic <= CURRENT_MAGIC:
        return ProduceRefusal(ErrorCode.CORRUPT_MESSAGE, f"There is no record format {magic}.")
    return None
