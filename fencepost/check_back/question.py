"""A question about one prepared transaction, its answer, and the interface of a resolver, the source of answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from fencepost.two_phase.tokens import Token


class Answer(Enum):
    """A source's answer about a transaction."""

    COMMIT = "commit"
    ABORT = "abort"
    UNKNOWN = "unknown"  # the source has answered that it does not know the outcome (yet)


@dataclass(frozen=True, slots=True)
class Question:
    """A prepared transaction whose outcome a source is asked for.

    started_ms: begin of the transaction, in ms since 1970, by the coordinator's clock. partitions: (topic, number)
    of each partition that it has written to, sorted.
    """

    token: Token
    started_ms: int
    partitions: tuple[tuple[str, int], ...]


class ResolverUnreachable(Exception):  # noqa: N818  # the check-back handles it
    """The source could not be asked, so there is no answer. `reason` is one sentence for operators, without secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Resolver(Protocol):
    """A source of answers. Several questions may be asked at a time."""

    async def ask(self, question: Question) -> Answer:
        """Ask the source. Raises ResolverUnreachable if it gave no answer that can be understood as one."""

    async def close(self) -> None:
        """Close connections. Is called once, after the last question."""


class LatestRecord(NamedTuple):
    """The latest committed record under a key.

    value: None for a tombstone. timestamp_ms: the record's timestamp. is_append_time: whether the broker set the
    timestamp when it appended the record; else it is from the producer's clock.
    """

    value: bytes | None
    timestamp_ms: int
    is_append_time: bool


class RecordReader(Protocol):
    """Reads a compacted topic of the cluster whose transactions are in doubt."""

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        """Read the latest committed record under a key; None if there is none, also if the topic does not exist.

        "Committed" and "latest" count up to the high watermark when the call began, with every open transaction that
        began before it ended: so a decision that is not found had not been made then. Raises ResolverUnreachable if
        that cannot be read in time.
        """
