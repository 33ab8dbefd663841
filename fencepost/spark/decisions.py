"""Decisions of a sink, and their consequences for a batch that is written now. Pure.

A decision is a committed record of the decision topic. It names the batch and the transactions that belong to it: if it
exists, they will be committed, and without it they will be aborted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from fencepost.protocol.checked_json import Fields, parse_object
from fencepost.two_phase import InDoubt, Token

LARGEST_BYTES: Final = 64 << 20
"""More than a decision about the transactions of all tasks that a job may have."""


class Batch(NamedTuple):
    """A batch of a streaming query; a batch job has no query, and its own uuid as its number."""

    query: str | None
    number: int | str

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}" if self.query else f"the batch job {self.number}"


class Save(NamedTuple):
    """One call of `save` in a query's `foreachBatch`.

    id: unique id of this call. topic: None if the rows name theirs. query, run: ids of the query and of its run; None
    if Spark does not say.
    """

    id: str
    topic: str | None = None
    query: str | None = None
    run: str | None = None

    @classmethod
    def parse(cls, found: Fields) -> Save:
        """Read a save. Raises ValueError unless a sink has written it."""
        for name in cls._fields:
            found.value(name)  # null is a value, a missing field is an error
        return cls(found.text("id"), *(found.text_or_none(name) for name in ("topic", "query", "run")))


class Decision(NamedTuple):
    """A batch is committed.

    id: unique id of this decision; options that put a decision aside name it. rows: number in all its transactions.
    prepare_ms: time of its slowest task. save: None except for `foreachBatch`, and in records of earlier versions.
    """

    id: str
    batch: Batch
    tokens: tuple[Token, ...]
    rows: int
    prepare_ms: int = 0
    save: Save | None = None

    def value(self) -> bytes:
        """Return the record's value. The check-back reads its field `tokens`."""
        return json.dumps(
            {
                "batch": self.batch.number,
                "query": self.batch.query,
                "tokens": [str(token) for token in self.tokens],
                "rows": self.rows,
                "prepare_ms": self.prepare_ms,
                "id": self.id,
                **({} if self.save is None else {"save": self.save._asdict()}),
            }
        ).encode()

    @classmethod
    def parse(cls, value: bytes) -> Decision:
        """Read a decision. Raises ValueError unless a sink has written it."""
        try:
            found = parse_object(value, most_bytes=LARGEST_BYTES)
            query = found.text_or_none("query")
            return cls(
                found.text("id"),
                # A query's batches have numbers, a batch job has a text.
                Batch(query, found.text("batch") if query is None else found.whole("batch")),
                tuple(Token.parse(text) for text in found.texts("tokens")),
                found.whole("rows"),
                found.whole("prepare_ms"),
                Save.parse(found.object("save")) if "save" in found else None,
            )
        except ValueError as error:
            raise ValueError(f"not a decision of a sink, {error}: {value[:200]!r}") from error


class Latest(NamedTuple):
    """State of a sink in the decision topic.

    done: the id of the decision that is complete in all its transactions.
    aborted_until_ms: time on the coordinator's clock; undecided transactions that began up to then are aborted.
    found: the last save that has found the decision, and has written nothing.
    """

    decision: Decision | None = None
    done: str | None = None
    aborted_until_ms: int = -1
    found: Save | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing of the latest decision is left to be completed."""
        return self.decision is None or self.decision.id == self.done


class Standing(Enum):
    """Whether a batch is written already."""

    OPEN = "open"
    DECIDED = "decided"


class SinkInUse(Exception):  # noqa: N818  # callers handle it
    """The sink's decision is not of this query, or of a later batch."""


class SinkUsedTwice(Exception):  # noqa: N818  # as above
    """A save of another kind, or an earlier one of the same run, has written the batch with the sink's name."""


class DriverReplaced(Exception):  # noqa: N818  # as above
    """A later driver of the sink has taken over: this one can decide nothing any more."""


class NotPreparedAnyMore(Exception):  # noqa: N818  # as above
    """A transaction of the batch was ended before it was decided: Spark has to run the batch again."""


def done_value(decision: Decision, *, complete_ms: int, swept: int) -> bytes:
    """Return the value of the mark that a decision is complete."""
    return json.dumps(
        {
            "batch": decision.batch.number,
            "done": True,
            "id": decision.id,
            "complete_ms": complete_ms,
            "swept": swept,
        }
    ).encode()


def found_value(decision: Decision, save: Save) -> bytes:
    """Return the value of the mark that a save has found its batch decided."""
    return json.dumps({"id": decision.id, "save": save._asdict()}).encode()


def partial_value(decision: Decision, missing: Sequence[str]) -> bytes:
    """Return the value of the mark of a batch job that had transactions aborted after its decision."""
    return json.dumps({"batch": decision.batch.number, "done": False, "id": decision.id, "missing": missing}).encode()


def aborted_value(until_ms: int) -> bytes:
    return json.dumps({"aborted_until_ms": until_ms}).encode()


def latest_of(records: Mapping[str, bytes], keys: Sequence[str]) -> Latest:
    """Read the values of the keys of a decision, of its done mark, of its aborted mark, and of its found mark.

    Raises ValueError for values that no sink has written.
    """
    decision, done, aborted, found = (records.get(key) for key in keys)
    latest = Latest(None if decision is None else Decision.parse(decision))
    try:
        if done is not None:
            latest = latest._replace(done=parse_object(done).text("id"))
        if aborted is not None:
            latest = latest._replace(aborted_until_ms=parse_object(aborted).whole("aborted_until_ms", -1))
        mark = None if found is None else parse_object(found)
        if mark is not None and latest.decision is not None and mark.text("id") == latest.decision.id:
            latest = latest._replace(found=Save.parse(mark.object("save")))
    except ValueError as error:
        raise ValueError(f"not a mark of a sink: {done!r:.200}, {aborted!r:.200} or {found!r:.200}") from error
    return latest


def standing(
    latest: Latest, sink: str, batch: Batch, *, save: Save | None = None, reset: str | None = None
) -> Standing:
    """Return whether a batch of a query is decided. reset: the id of a decision that is put aside.

    Raises SinkInUse if the decision is of another query or a later batch: then the query would write offsets again that
    are committed, or two queries share a sink.
    """
    decision = latest.decision
    if decision is None or decision.id == reset:
        return Standing.OPEN
    if batch.query is None and decision.batch.query is None:  # each batch job writes something of its own
        return Standing.DECIDED if decision.batch == batch else Standing.OPEN
    is_of_another = decision.batch.query != batch.query or _are_of_two_queries(decision.save, save)
    if is_of_another or decision.batch.number > batch.number:  # type: ignore[operator]
        raise SinkInUse(
            f"{batch} would write to the sink {sink!r}, which has committed {decision.batch}: the checkpoint was "
            "deleted or set back, or another query uses this sink. Give each query a sink of its own (option 'sink'). "
            "To begin again with this one, so that records may be there twice, set option 'sink.reset' to "
            f"'{decision.id}'"
        )
    return Standing.DECIDED if decision.batch == batch else Standing.OPEN


def _are_of_two_queries(one: Save | None, other: Save | None) -> bool:
    return one is not None and other is not None and None not in (one.query, other.query) and one.query != other.query


def require_one_save(latest: Latest, sink: str, save: Save, *, accept: str | None = None) -> None:
    """Raise SinkUsedTwice if a save finds its batch decided by one that it does not repeat.

    A run calls each of its saves once for a batch; a later run repeats them. accept: the id of a decision that the save
    is to be taken for.
    """
    decision = latest.decision
    if decision is None or decision.id == accept:
        return
    for earlier in (decision.save, latest.found):
        if earlier is None or earlier.id == save.id:
            continue
        if earlier.topic != save.topic or (save.run is not None and earlier.run == save.run):
            raise SinkUsedTwice(
                f"{decision.batch} of the sink {sink!r} is committed by another save, to {_place(earlier)}: nothing of "
                f"this one, to {_place(save)}, was written. Give each save in a foreachBatch a sink of its own (option "
                f"'sink'), and let the one to {_place(decision.save or earlier)} keep this name. If this save writes "
                f"what that one has written, set option 'sink.accept' to '{decision.id}'"
            )


def _place(save: Save) -> str:
    return "the topics that its rows name" if save.topic is None else f"the topic {save.topic!r}"


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
    """Return the open transactions of a sink that no batch will decide: of lost copies of tasks, and of runs that died.

    tokens: transactions of the decided batch. Others that began after its youngest may belong to a later batch.
    """
    own = set(tokens)
    found = list(in_doubt)
    youngest_ms = max((open_.start_ms for open_ in found if open_.token in own), default=-1)
    return [open_.token for open_ in found if open_.token not in own and open_.start_ms <= youngest_ms]
