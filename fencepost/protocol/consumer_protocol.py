"""Subscriptions and assignments of the classic protocol, which consumers exchange in JoinGroup and SyncGroup.

The broker decodes them only if members of both protocols share a group. A higher version than those known here is
read as the highest known: Kafka promises that later ones only append fields.
Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and ConsumerProtocol.
"""

from struct import Struct
from typing import TypeVar

from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.schema import decode, encode, field, int32, message, struct

Message = TypeVar("Message")

HIGHEST_VERSION = 3
_VERSION = Struct(">h")


@struct
class ConsumerProtocolTopicPartitions:
    """Partitions of a topic."""

    topic: str = ""
    partitions: list[int32] = []


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics that a consumer subscribes to, and the partitions that it owns."""

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolTopicPartitions] = field(versions="1+", default=[])
    generation_id: int32 = field(versions="2+", default=-1)
    rack_id: str | None = field(versions="3+", default=None)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions that a consumer gets."""

    assigned_partitions: list[ConsumerProtocolTopicPartitions] = []
    user_data: bytes | None = None


def decode_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Decode the subscription in a JoinGroup. Raises DecodeError: clients may send any bytes."""
    return _decode(ConsumerProtocolSubscription, metadata)


def decode_assignment(assignment: Buffer) -> ConsumerProtocolAssignment:
    """Decode the assignment that a leader gave a member. Raises DecodeError."""
    return _decode(ConsumerProtocolAssignment, assignment)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode an assignment in the member's version."""
    version = min(version, HIGHEST_VERSION)
    return _VERSION.pack(version) + bytes(encode(assignment, version))


def version_of(metadata: Buffer) -> int:
    """Return the version at the start. Raises DecodeError if there is none, or it is negative."""
    if len(metadata) < _VERSION.size:
        raise DecodeError(f"{len(metadata)} bytes are too few for a version", position=0, expected="version")
    version: int = _VERSION.unpack_from(metadata)[0]
    if version < 0:
        raise DecodeError(f"{version} is no version", position=0, expected="version")
    return version


def _decode(declared: type[Message], buffer: Buffer) -> Message:
    return decode(declared, buffer, min(version_of(buffer), HIGHEST_VERSION), _VERSION.size)
