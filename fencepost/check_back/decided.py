"""Decided batches of Spark's sinks: which topic may decide which transactions, and the content of a decision. Pure.

A task of a sink writes its rows in a transaction with the id `SINK-NONCE-PARTITION-ATTEMPT`. The sink's driver then
commits one record under the key SINK in a decision topic: it lists the transactions that are committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

from fencepost.protocol.checked_json import parse_object

TOPIC_PREFIX: Final = "fencepost-sink-"
DEFAULT_GLOB: Final = TOPIC_PREFIX + "*"
JOBS_TOPIC: Final = TOPIC_PREFIX + "batch"
"""The decision topic of batch jobs that name no sink: they share it."""
MOST_BYTES: Final = 64 << 20
"""As for `fencepost.spark.decisions.LARGEST_BYTES`."""
LONGEST_TASK_ID: Final = 250
"""200 characters of a sink's name, and those of its nonce, partition and attempt."""

_TASK: Final = re.compile(r"(.+)-[0-9a-f]{8}-\d+-\d+", re.DOTALL | re.ASCII)
_JOB: Final = re.compile(r"batch-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SINK: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class DecidedBatch(NamedTuple):
    """The content of a decision.

    tokens: texts of the tokens of the sink's own tasks; strange: number of the others, which are not honoured.
    id, batch, query, rows: values that the sink has written; None if they are missing.
    """

    sink: str
    tokens: tuple[str, ...]
    strange: int = 0
    id: str | None = None
    batch: str | None = None
    query: str | None = None
    rows: int | None = None

    @property
    def is_job(self) -> bool:
        """Whether it is a batch job that names no sink: nobody runs it again."""
        return is_job(self.sink)


def sink_of(transactional_id: str) -> str | None:
    """The sink of a task's transactional id; None for other ids."""
    # Coordinators ask about every id, often.
    if not transactional_id[-1:].isdecimal() or len(transactional_id) > LONGEST_TASK_ID:
        return None
    return _sink_of(transactional_id)


@lru_cache(4096)
def _sink_of(transactional_id: str) -> str | None:
    found = _TASK.fullmatch(transactional_id)
    return None if found is None or _SINK.fullmatch(found[1]) is None else found[1]


def is_job(sink: str) -> bool:
    """Whether a sink is that of a batch job that names none."""
    return _JOB.fullmatch(sink) is not None


def batch_of(sink: str, value: bytes) -> DecidedBatch:
    """Read the decision under a sink's key. Raises ValueError unless it lists tokens."""
    found = parse_object(value, most_bytes=MOST_BYTES)
    tokens = found.texts("tokens")
    is_own = re.compile(rf"\d+:\d+:{re.escape(sink)}-[0-9a-f]{{8}}-\d+-\d+", re.ASCII).fullmatch
    own = tuple(dict.fromkeys(filter(is_own, tokens)))
    fields = {name: found.value(name) for name in ("id", "batch", "query", "rows") if name in found}
    batch, rows = fields.get("batch"), fields.get("rows")
    return DecidedBatch(
        sink,
        own,
        len(set(tokens)) - len(own),
        _text(fields.get("id")),
        str(batch) if type(batch) is int else _text(batch),  # a query's batches have numbers, a job a text
        _text(fields.get("query")),
        rows if type(rows) is int else None,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def done_id(value: bytes) -> str | None:
    """The id of the decision that a done mark is about, if all its transactions are committed; None for other marks."""
    try:
        found = parse_object(value)
        return found.text("id") if found.value("done") is True else None
    except ValueError:
        return None


def partial_value(batch: DecidedBatch, missing: Sequence[str]) -> bytes:
    """The mark of a batch job that had transactions aborted after its decision, as its driver writes it."""
    return json.dumps({"batch": batch.batch, "done": False, "id": batch.id, "missing": list(missing)}).encode()


class DecisionTopics:
    """The topics in which sinks decide, by globs.

    has_default: true if topics count that are named after a sink. names: topics that are named without a wildcard.

    Who may write a topic of the default glob decides about the one sink that its name has, or about jobs. Topics that
    an operator names by another glob may decide about all sinks.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        self.globs = tuple(globs)
        self.has_default = DEFAULT_GLOB in globs
        others = [glob for glob in globs if glob != DEFAULT_GLOB]
        # fnmatch's sets and wildcards; a name without them is looked up.
        self.names = tuple(glob for glob in others if not set("*?[") & set(glob))
        patterns = [translate(glob) for glob in others if set("*?[") & set(glob)]
        self._others = re.compile("|".join(patterns)) if patterns else None

    def own(self, sink: str) -> tuple[str, ...]:
        """The topics of the default glob that may decide about a sink."""
        if not self.has_default:
            return ()
        return (JOBS_TOPIC if is_job(sink) else TOPIC_PREFIX + sink,)

    @property
    def has_patterns(self) -> bool:
        """Whether all names of topics have to be looked at, by `is_trusted`."""
        return self._others is not None

    def is_trusted(self, topic: str) -> bool:
        """Whether a topic may decide about all sinks."""
        return topic in self.names or (self._others is not None and self._others.match(topic) is not None)

    def may_decide(self, topic: str, sink: str) -> bool:
        return topic in self.own(sink) or self.is_trusted(topic)

    def is_one(self, topic: str) -> bool:
        """Whether a topic may decide about any sink."""
        return (self.has_default and topic.startswith(TOPIC_PREFIX)) or self.is_trusted(topic)
