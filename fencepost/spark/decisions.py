"""What a sink has decided, and what follows from it for a batch that is written now. Pure.

A decision is a committed record of the decision topic. It names the batch and the transactions that belong to it: once
it is there, they will be committed, and without it they will be aborted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from fencepost.two_phase import InDoubt, Token


class Batch(NamedTuple):
    """A batch of a streaming query; a batch job has no query, and its own uuid as its number."""

    query: str | None
    number: int | str

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}" if self.query else f"the batch job {self.number}"


class Decision(NamedTuple):
    """A batch is committed.

    id: of this decision alone; options that put a decision aside name it. rows: of all its transactions.
    prepare_ms: of its slowest task.
    """

    id: str
    batch: Batch
    tokens: tuple[Token, ...]
    rows: int
    prepare_ms: int = 0

    def value(self) -> bytes:
        """The record's value. Check-back reads `tokens` of it."""
        return json.dumps(
            {
                "batch": self.batch.number,
                "query": self.batch.query,
                "tokens": [str(token) for token in self.tokens],
                "rows": self.rows,
                "prepare_ms": self.prepare_ms,
                "id": self.id,
            }
        ).encode()

    @classmethod
    def parse(cls, value: bytes) -> Decision:
        """Raises ValueError for what no sink has written."""
        try:
            found = json.loads(value)
            return cls(
                str(found["id"]),
                Batch(found["query"], found["batch"]),
                tuple(Token.parse(text) for text in found["tokens"]),
                int(found["rows"]),
                int(found["prepare_ms"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a decision of a sink: {value[:200]!r}") from error


class Latest(NamedTuple):
    """What the decision topic says of a sink.

    done: the id of the decision that is complete in all its transactions.
    aborted_until_ms: undecided transactions that began up to then are aborted, by their coordinator's clock.
    """

    decision: Decision | None = None
    done: str | None = None
    aborted_until_ms: int = -1

    @property
    def is_done(self) -> bool:
        """Whether nothing of the latest decision is left to be completed."""
        return self.decision is None or self.decision.id == self.done


class Standing(Enum):
    """Whether a batch is written already."""

    OPEN = "open"
    DECIDED = "decided"


class SinkInUse(Exception):  # noqa: N818  # what a caller meets and deals with
    """The sink's decision is not of this query, or of a later batch."""


class DriverReplaced(Exception):  # noqa: N818  # as above
    """A later driver of the sink has taken over: this one can decide nothing any more."""


class NotPreparedAnyMore(Exception):  # noqa: N818  # as above
    """A transaction of the batch was ended before it was decided: Spark has to run the batch again."""


def done_value(decision: Decision, *, complete_ms: int, swept: int) -> bytes:
    """The value of the mark that a decision is complete."""
    return json.dumps(
        {
            "batch": decision.batch.number,
            "done": True,
            "id": decision.id,
            "complete_ms": complete_ms,
            "swept": swept,
        }
    ).encode()


def aborted_value(until_ms: int) -> bytes:
    return json.dumps({"aborted_until_ms": until_ms}).encode()


def latest_of(records: Mapping[str, bytes], keys: Sequence[str]) -> Latest:
    """Read what lies under the keys of a decision, of its done mark, and of its aborted mark."""
    decision, done, aborted = (records.get(key) for key in keys)
    return Latest(
        None if decision is None else Decision.parse(decision),
        None if done is None else json.loads(done)["id"],
        -1 if aborted is None else json.loads(aborted)["aborted_until_ms"],
    )


def standing(latest: Latest, sink: str, batch: Batch, *, reset: str | None = None) -> Standing:
    """Whether a batch of a query is decided. reset: the id of a decision that is put aside.

    Raises SinkInUse if the decision is of another query or a later batch: then offsets that were written are to be
    written again, or two queries share a sink.
    """
    decision = latest.decision
    if decision is None or decision.id == reset:
        return Standing.OPEN
    if batch.query is None and decision.batch.query is None:  # each batch job writes something of its own
        return Standing.DECIDED if decision.batch == batch else Standing.OPEN
    is_later = decision.batch.query == batch.query and decision.batch.number > batch.number  # type: ignore[operator]
    if decision.batch.query != batch.query or is_later:
        raise SinkInUse(
            f"{batch} would write to the sink {sink!r}, which has committed {decision.batch}: the checkpoint was "
            "deleted or set back, or another query uses this sink. Give each query a sink of its own (option 'sink'). "
            "To begin again with this one, so that records may be there twice, set option 'sink.reset' to "
            f"'{decision.id}'"
        )
    return Standing.DECIDED if decision.batch == batch else Standing.OPEN


def require_prepared(tokens: Iterable[Token], in_doubt: Iterable[InDoubt], aborted_until_ms: int) -> None:
    """Raise NotPreparedAnyMore if one of the tokens is not open under its pair, or is being aborted."""
    starts = {found.token: found.start_ms for found in in_doubt}
    ended = [str(token) for token in tokens if token not in starts]
    if ended:
        raise NotPreparedAnyMore(
            f"{', '.join(ended)} ended before the batch was decided, by the transactions' time-out "
            "(kafka.transaction.timeout.ms) or by an administrator: nothing of the batch is committed"
        )
    aborted = [str(token) for token in tokens if starts[token] <= aborted_until_ms]
    if aborted:
        raise NotPreparedAnyMore(f"{', '.join(aborted)} were aborted by another driver of this sink")


def leftovers(tokens: Iterable[Token], in_doubt: Iterable[InDoubt]) -> list[Token]:
    """Which open transactions of a sink no batch will decide: of lost copies of tasks, and of runs that died.

    tokens: of the batch that is decided. Those that began after its youngest may belong to a later batch.
    """
    own = set(tokens)
    found = list(in_doubt)
    youngest_ms = max((open_.start_ms for open_ in found if open_.token in own), default=-1)
    return [open_.token for open_ in found if open_.token not in own and open_.start_ms <= youngest_ms]
