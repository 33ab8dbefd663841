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
"""More than any decision that was ever written."""
MOST_WRITTEN_BYTES: Final = 1 << 20
"""Of a decision: a broker's check-back reads no more. The names of 4,500 to 28,000 transactions have room in it."""
MOST_NAMED: Final = 5
"""Of many transactions, how many an error names."""


LONGEST_DECIDING_MS: Final = 60_000
SLACK_MS: Final = 15_000
"""How much sooner than a task's transaction a driver's has to end: Apache Kafka looks for time-outs every 10 s."""


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
    is_each: whether each batch of the query has a decision, also one without rows; earlier versions left those out, and
    `foreachBatch` calls no `save` for some batches. ledger: id of the topic that it was written to, as for `Owner`.
    """

    id: str
    batch: Batch
    tokens: tuple[Token, ...]
    rows: int
    prepare_ms: int = 0
    save: Save | None = None
    is_each: bool = False
    ledger: str | None = None

    def value(self) -> bytes:
        """Return the record's value. The check-back reads its field `tokens`. Raises TooManyTasks."""
        value = json.dumps(
            {
                "batch": self.batch.number,
                "query": self.batch.query,
                "tokens": [str(token) for token in self.tokens],
                "rows": self.rows,
                "prepare_ms": self.prepare_ms,
                "id": self.id,
                **({} if self.save is None else {"save": self.save._asdict()}),
                **({"each": True} if self.is_each else {}),
                **({} if self.ledger is None else {"ledger": self.ledger}),
            }
        ).encode()
        if len(value) > MOST_WRITTEN_BYTES:
            raise TooManyTasks(
                f"{self.batch} has {len(self.tokens):,} transactions, one for each task with rows, and a decision that "
                f"names them has {len(value):,} bytes: at most {MOST_WRITTEN_BYTES:,} are allowed. Nothing of the "
                "batch is committed. Write it with fewer tasks (coalesce), or give the sink a shorter name"
            )
        return value

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
                "each" in found,
                found.text_or_none("ledger"),
            )
        except ValueError as error:
            raise ValueError(f"not a decision of a sink, {error}: {value[:200]!r}") from error


class Owner(NamedTuple):
    """The query that a sink belongs to, and the topic that its decisions were written to.

    id: unique id of this mark. query: id of the query; None for a sink of batch jobs, and if Spark does not say.
    ledger: the id of the decision topic; None if the brokers give topics no ids. A copy of the topic has another one.
    """

    id: str
    query: str | None
    ledger: str | None

    @classmethod
    def parse(cls, found: Fields) -> Owner:
        """Read a mark. Raises ValueError unless a sink has written it."""
        return cls(found.text("id"), found.text_or_none("query"), found.text_or_none("ledger"))


class Latest(NamedTuple):
    """State of a sink in the decision topic.

    done: the id of the decision that is complete in all its transactions.
    aborted_until_ms: time on the coordinator's clock; undecided transactions that began up to then are aborted.
    found: the last save that has found the decision, and has written nothing.
    owner: None for a sink that has never decided anything, and in topics of earlier versions.
    """

    decision: Decision | None = None
    done: str | None = None
    aborted_until_ms: int = -1
    found: Save | None = None
    owner: Owner | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing of the latest decision is left to be completed."""
        return self.decision is None or not self.decision.tokens or self.decision.id == self.done


class Standing(Enum):
    """Whether a batch is written already."""

    OPEN = "open"
    DECIDED = "decided"


class SinkInUse(Exception):  # noqa: N818  # callers handle it
    """The sink's decision is not of this query, or of a later batch."""


class SinkUsedTwice(Exception):  # noqa: N818  # as above
    """A save of another kind, or an earlier one of the same run, has written the batch with the sink's name."""


class LedgerChanged(Exception):  # noqa: N818  # as above
    """The decision topic is not the one that the sink has written: deleted, copied, or of an earlier moment."""


class DriverReplaced(Exception):  # noqa: N818  # as above
    """A later driver of the sink has taken over: this one can decide nothing any more."""


class NotPreparedAnyMore(Exception):  # noqa: N818  # as above
    """A transaction of the batch was ended before it was decided: Spark has to run the batch again."""


class TooManyTasks(Exception):  # noqa: N818  # as above
    """A batch has more transactions than a decision can name."""


def override_value(decision_id: str, option: str, batch: Batch, by: Mapping[str, str]) -> bytes:
    """Return the value of the record that an option has put a decision aside, or has accepted it.

    by: user, host and reason.
    """
    return json.dumps({"id": decision_id, "option": option, "batch": batch.number, "query": batch.query, **by}).encode()


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


def owner_value(owner: Owner) -> bytes:
    return json.dumps(owner._asdict()).encode()


def latest_of(records: Mapping[str, bytes], keys: Sequence[str]) -> Latest:
    """Read the values of the keys of a decision, of its marks done, aborted and found, and of the sink's owner.

    Raises ValueError for values that no sink has written.
    """
    decision, done, aborted, found, owner = (records.get(key) for key in keys)
    latest = Latest(None if decision is None else Decision.parse(decision))
    try:
        if done is not None:
            latest = latest._replace(done=parse_object(done).text("id"))
        if aborted is not None:
            latest = latest._replace(aborted_until_ms=parse_object(aborted).whole("aborted_until_ms", -1))
        mark = None if found is None else parse_object(found)
        if mark is not None and latest.decision is not None and mark.text("id") == latest.decision.id:
            latest = latest._replace(found=Save.parse(mark.object("save")))
        if owner is not None:
            latest = latest._replace(owner=Owner.parse(parse_object(owner)))
    except ValueError as error:
        raise ValueError(
            f"not a mark of a sink: {done!r:.200}, {aborted!r:.200}, {found!r:.200} or {owner!r:.200}"
        ) from error
    return latest


def standing(
    latest: Latest, sink: str, batch: Batch, *, save: Save | None = None, reset: str | None = None
) -> Standing:
    """Return whether a batch of a query is decided. reset: the id of a decision that is put aside.

    Raises SinkInUse if the decision is of another query or a later batch: then the query would write offsets again that
    are committed, or two queries share a sink.
    """
    decision = latest.decision
    if decision is None:
        _require_owner(latest.owner, sink, batch, save, reset)
        return Standing.OPEN
    if decision.id == reset:
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


def query_of(batch: Batch, save: Save | None) -> str | None:
    """Return the id of the query that writes a batch; None if Spark does not say, and for a batch job."""
    return batch.query if save is None else save.query


def _require_owner(owner: Owner | None, sink: str, batch: Batch, save: Save | None, reset: str | None) -> None:
    """Raise SinkInUse if a sink without a decision has begun as another query's."""
    query = query_of(batch, save)
    if owner is not None and owner.id != reset and None not in (owner.query, query) and owner.query != query:
        raise SinkInUse(
            f"{batch} would write to the sink {sink!r}, which the query {owner.query} has begun to write with: the "
            "checkpoint was deleted, or another query uses this sink. Give each query a sink of its own (option "
            f"'sink'). If that query is not run again, set option 'sink.reset' to '{owner.id}'"
        )


NO_TOPIC_IDS: Final = "ledger"
"""The value of `sink.reset` for a lost decision topic of a broker that gives topics no ids."""


def require_ledger(
    latest: Latest, sink: str, ledger: str | None, *, has_written: bool, accept: str | None, reset: str | None
) -> None:
    """Raise LedgerChanged if the decision topic is not the one that the sink has written.

    ledger: id of the topic. has_written: whether the coordinator knows that the sink's driver has written something.
    """
    decision, owner = latest.decision, latest.owner
    if decision is not None:
        if None not in (decision.ledger, ledger) and decision.ledger != ledger and decision.id not in (accept, reset):
            raise LedgerChanged(
                f"the decision of {decision.batch} of the sink {sink!r} was written to another topic, with the id "
                f"{decision.ledger}: this one, {ledger}, is a copy of it, such as that of a mirror. Compare the topics "
                "of the records with the source. If they have what was decided, set option 'sink.accept' to "
                f"'{decision.id}'; to write the batch again, 'sink.reset'"
            )
        return
    if reset == (ledger or NO_TOPIC_IDS) or (owner is not None and owner.id == reset):
        return
    is_copied = owner is not None and None not in (owner.ledger, ledger) and owner.ledger != ledger
    if is_copied or (has_written and latest == Latest()):
        raise LedgerChanged(
            f"the sink {sink!r} has written before, and its decision topic has nothing of it: the topic was deleted, "
            "or is a copy. Whether a batch is written already cannot be seen there. Compare the topics of the records "
            "with the source; to write the next batch whatever was written before, set option 'sink.reset' to "
            f"'{ledger or NO_TOPIC_IDS}'"
        )


def require_no_gap(latest: Latest, sink: str, batch: Batch, *, accept: str | None, reset: str | None) -> None:
    """Raise LedgerChanged if decisions of batches between the latest one and this one are missing."""
    decision = latest.decision
    if decision is None or not decision.is_each or decision.id in (accept, reset):
        return
    if decision.batch.query == batch.query and batch.number > decision.batch.number + 1:  # type: ignore[operator]
        raise LedgerChanged(
            f"the query writes {batch}, and the latest decision of the sink {sink!r} is of {decision.batch}: the "
            "decisions between are missing. The decision topic is that of an earlier moment, such as of a backup; or "
            "the query had another sink meanwhile. Compare the topics of the records with the source. To go on with "
            f"what is there, set option 'sink.accept' to '{decision.id}'"
        )


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
            f"{listed(ended)} ended before the batch was decided, by the transactions' time-out "
            "(kafka.transaction.timeout.ms) or by an administrator: nothing of the batch is committed"
        )
    aborted = [str(token) for token in tokens if starts[token] <= aborted_until_ms]
    if aborted:
        raise NotPreparedAnyMore(f"{listed(aborted)} were aborted by another driver of this sink")


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return the first of many names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return separator.join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def driver_timeout_ms(timeout_ms: int) -> int:
    """Return the time-out of the driver's transactions, by that of the tasks'."""
    return max(1_000, min(LONGEST_DECIDING_MS, timeout_ms // 3))


def require_time(tokens: Iterable[Token], in_doubt: Iterable[InDoubt], driver_start_ms: int, driver_ms: int) -> None:
    """Raise NotPreparedAnyMore if time may end one of the tokens' transactions before the driver's, which decides.

    The coordinators' clocks give all starts. driver_start_ms, driver_ms: start and time-out of the driver's.
    """
    decided_by_ms = driver_start_ms + min(driver_ms, LONGEST_DECIDING_MS)  # it may be without one, by its name
    own = set(tokens)
    late = [
        str(found.token)
        for found in in_doubt
        if found.token in own
        and not found.is_two_phase
        and decided_by_ms + min(SLACK_MS, found.timeout_ms // 6) > found.start_ms + found.timeout_ms
    ]
    if late:
        raise NotPreparedAnyMore(
            f"{', '.join(late)} would soon be ended by the transactions' time-out, perhaps before the decision: "
            "nothing of the batch is committed. If its tasks are so slow, raise kafka.transaction.timeout.ms"
        )


def leftovers(tokens: Iterable[Token], in_doubt: Iterable[InDoubt]) -> list[Token]:
    """Return the open transactions of a sink that no batch will decide: of lost copies of tasks, and of runs that died.

    tokens: transactions of the decided batch. Others that began after its youngest may belong to a later batch.
    """
    own = set(tokens)
    found = list(in_doubt)
    youngest_ms = max((open_.start_ms for open_ in found if open_.token in own), default=-1)
    return [open_.token for open_ in found if open_.token not in own and open_.start_ms <= youngest_ms]
