"""Tokens of prepared transactions, and their outcomes. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NO_RIGHT_TO_ID = 53  # of Kafka's error codes


class Token(NamedTuple):
    """A prepared transaction: enough to end it, from any process.

    producer_id, producer_epoch: the pair that wrote the records.
    As text `7:0:order-writer-1`; its beginning is the text of Java's PreparedTxnState.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read a token's text. Raises ValueError."""
        producer_id, _, rest = text.partition(":")
        producer_epoch, separator, transactional_id = rest.partition(":")
        try:
            token = cls(int(producer_id), int(producer_epoch), transactional_id)
        except ValueError:
            token = None
        is_whole = token is not None and bool(separator and transactional_id) and str(token) == text
        if token is None or not is_whole or not (0 <= token[0] < 1 << 63 and 0 <= token[1] < 1 << 15):
            raise ValueError(
                f"expected PRODUCER_ID:EPOCH:TRANSACTIONAL_ID, such as 7:0:order-writer-1; got {text[:200]!r}"
            )
        return token


class Outcome(Enum):
    """State of a token's transaction at its coordinator."""

    PREPARED = "prepared"  # open
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # a later transaction or session has taken its place, or the id is forgotten


class InDoubt(NamedTuple):
    """An open transaction.

    partitions: names like `topic-number`. age_ms: time since it began. is_two_phase: whether it never times out.
    start_ms: time of its begin, by its coordinator's clock, in ms since 1970. timeout_ms: its time-out, from then on.
    """

    token: Token
    partitions: tuple[str, ...]
    age_ms: int
    is_two_phase: bool
    start_ms: int
    timeout_ms: int


class TwoPhaseError(Exception):
    """The base of the errors of this package; `token` is the transaction that it is about, if one is known."""

    def __init__(self, message: str, token: Token | None = None) -> None:
        super().__init__(message)
        self.token = token


class NotPrepared(TwoPhaseError):  # noqa: N818  # callers handle it
    """Records were refused, or are not acknowledged yet: the transaction can only be aborted."""


class HeuristicOutcome(TwoPhaseError):  # noqa: N818  # the name that transaction monitors have for it
    """The transaction had been ended the other way: the two sides differ, and a person has to look."""


class Superseded(TwoPhaseError):  # noqa: N818  # as above
    """A later session has taken the transactional id, and nobody can tell how the token's transaction ended."""


class Refused(TwoPhaseError):  # noqa: N818  # as above
    """The brokers refuse this client: its certificate, its password or its rights. Nothing was ended."""


class Fenced(TwoPhaseError):  # noqa: N818  # as above
    """A later session has claimed the transactional id in the database: roll back, and make way for it."""


class InDoubtError(TwoPhaseError):
    """Nobody knows yet whether the database has committed: `recover` finds out, in this process or another one."""


class NeedsRecovery(TwoPhaseError):  # noqa: N818  # as above
    """This producer cannot go on: call `recover`, and make another one. With a token, the database has committed it."""


class MisuseError(TwoPhaseError, ValueError):
    """The connection, the table or the order of calls is not as this package needs it: the message has the remedy."""


class WeakDatabase(UserWarning):
    """A failure of the database may lose transactions that it has committed: the message has setting and remedy."""


def no_right(what: str, token: Token | None) -> Refused:
    return Refused(
        f"the brokers do not let this client {what}: allow it DESCRIBE and WRITE on the transactional id "
        f"({name_of(NO_RIGHT_TO_ID)})",
        token,
    )


def no_right_to_init(transactional_id: str) -> Refused:
    return Refused(
        f"the brokers do not let this client write as {transactional_id}: allow it WRITE on the transactional id, and "
        "TWO_PHASE_COMMIT where the id is two-phase"
    )


def name_of(error: int) -> str:
    from fencepost.client.errors import error_name

    return f"{error_name(error)} ({error})"
