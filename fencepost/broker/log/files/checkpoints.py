"""Encoding of the small text files beside the logs: offset checkpoints, leader epochs, partition metadata; Kafka's
layouts.

All are rewritten as a whole. A damaged file raises `CorruptCheckpointError`; callers then read the log itself, which is
slower and always right.
Source: Kafka's OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition

CHECKPOINT_VERSION = 0
OFFSETS_PER_STEP = 1_000
ZERO_TOPIC_ID = bytes(16)
GREATEST_NUMBER = 2**63 - 1
LONGEST_NUMBER = 19  # its digits


class CorruptCheckpointError(Exception):
    """The file's content is not the written one."""


class EpochStart(NamedTuple):
    """A leader epoch and the first offset written in it."""

    leader_epoch: int
    start_offset: int


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode `recovery-point-offset-checkpoint` or `log-start-offset-checkpoint`: `topic partition offset` per line."""
    return run_to_end(encode_offsets_in_steps(offsets))


def encode_offsets_in_steps(offsets: Mapping[TopicPartition, int]) -> SlicedWork[bytes]:
    """Encode as `encode_offsets` does, a thousand partitions per step; `offsets` must not change meanwhile."""
    pieces = [f"{CHECKPOINT_VERSION}\n{len(offsets)}\n"]
    entries = iter(offsets.items())
    while part := list(islice(entries, OFFSETS_PER_STEP)):
        pieces.append("".join(f"{name.topic} {name.partition} {offset}\n" for name, offset in part))
        yield
    return "".join(pieces).encode()


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. Raises CorruptCheckpointError."""
    offsets = {}
    for line in _decode(content):
        topic, partition, offset = _fields(line, 3)
        name = TopicPartition(topic, _number(partition))
        if name in offsets:
            raise CorruptCheckpointError(f"two entries of {name}")
        offsets[name] = _number(offset)
    return offsets


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Encode `leader-epoch-checkpoint`: `epoch start_offset` per line."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_epochs(content: bytes) -> list[EpochStart]:
    """Decode leader epochs. Raises CorruptCheckpointError, also when epochs or offsets do not rise."""
    epochs = [EpochStart(*map(_number, _fields(line, 2))) for line in _decode(content)]
    for before, after in pairwise(epochs):
        if after.leader_epoch <= before.leader_epoch or after.start_offset < before.start_offset:
            raise CorruptCheckpointError(f"epoch {after.leader_epoch} does not follow {before.leader_epoch}")
    return epochs


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Encode `partition.metadata`: the topic id of the directory, 16 bytes as URL-safe base 64."""
    return (
        f"version: {CHECKPOINT_VERSION}\ntopic_id: {base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}\n".encode()
    )


def decode_partition_metadata(content: bytes) -> bytes:
    """Decode the topic id. Raises CorruptCheckpointError."""
    fields = dict(line.split(": ", 1) for line in _text(content).splitlines() if ": " in line)
    if fields.get("version") != str(CHECKPOINT_VERSION) or "topic_id" not in fields:
        raise CorruptCheckpointError("no version or topic id")
    try:
        topic_id = base64.urlsafe_b64decode(fields["topic_id"] + "==")
    except (binascii.Error, ValueError) as error:
        raise CorruptCheckpointError("the topic id is not base 64") from error
    if len(topic_id) != len(ZERO_TOPIC_ID):
        raise CorruptCheckpointError(f"a topic id of {len(topic_id)} bytes")
    return topic_id


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(entries)), *entries)).encode()


def _decode(content: bytes) -> list[str]:
    lines = _text(content).splitlines()
    if len(lines) < 2 or lines[0] != str(CHECKPOINT_VERSION):
        raise CorruptCheckpointError("no version")
    if _number(lines[1]) != len(lines) - 2:
        raise CorruptCheckpointError(f"{len(lines) - 2} entries instead of {lines[1]}")
    return lines[2:]


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("not text") from error


def _fields(line: str, count: int) -> list[str]:
    fields = line.split(" ")
    if len(fields) != count:
        raise CorruptCheckpointError(f"{len(fields)} fields instead of {count}")
    return fields


def _number(text: str) -> int:
    if not text.isdecimal():
        raise CorruptCheckpointError(f"{text!r} is not a number")
    number = int(text) if len(text) <= LONGEST_NUMBER else GREATEST_NUMBER + 1
    if number > GREATEST_NUMBER:
        raise CorruptCheckpointError(f"{text[:LONGEST_NUMBER]!r} is above all offsets")
    return number
