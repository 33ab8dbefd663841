"""Names that belong to a sink: its transactional ids, its decision topic, the keys of its records there. Pure."""

from __future__ import annotations

import re
import secrets

VALID_SINK = re.compile(r"[A-Za-z0-9._-]{1,200}")
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
NONCE_BYTES = 4
ONE_OFF = "batch"
"""Where the sinks of batch jobs begin that have no name."""


def require_sink_name(sink: str) -> str:
    """Raise ValueError for a name that cannot be part of a topic's, or that a batch job without a sink has."""
    if not VALID_SINK.fullmatch(sink):
        raise ValueError(f"the sink's name may have letters, digits, '.', '_' and '-', up to 200; got {sink!r}")
    if is_one_off(sink):
        raise ValueError(f"batch jobs that name no sink have names such as {sink!r}: give the sink another one")
    return sink


def draw_nonce() -> str:
    """Eight hexadecimal digits, from the system: a worker that was forked would repeat those of `random`."""
    return secrets.token_hex(NONCE_BYTES)


def one_off_sink(job: str) -> str:
    """The sink of a batch job that names none."""
    return f"{ONE_OFF}-{job}"


def is_one_off(sink: str) -> bool:
    """Whether a sink is that of a batch job that names none."""
    return re.fullmatch(f"{ONE_OFF}-{UUID}", sink) is not None


def spark_id(text: str | None) -> str | None:
    """A UUID that Spark has drawn for a query or a run; None for any other text."""
    return text if text is not None and re.fullmatch(UUID, text) else None


def driver_id(sink: str) -> str:
    """The transactional id under which the driver decides."""
    return f"{sink}-driver"


def task_id(sink: str, nonce: str, partition: int, attempt: int) -> str:
    """The transactional id of one attempt of one task, never used twice.

    nonce: drawn for each batch of each run. attempt: the id that Spark gives to each attempt of a task; the number of
    an attempt begins at 0 again when a stage is repeated.
    """
    return f"{sink}-{nonce}-{partition}-{attempt}"


def task_ids_pattern(sink: str) -> str:
    """A regular expression for all `task_id` of a sink."""
    return rf"{re.escape(sink)}-[0-9a-f]{{8}}-\d+-\d+"


def default_decision_topic(sink: str) -> str:
    return f"fencepost-sink-{sink}"


def decision_key(sink: str) -> str:
    return sink


def done_key(sink: str) -> str:
    """The key of the mark that all transactions of a decision are complete. No sink has a '/' in its name."""
    return f"{sink}/done"


def found_key(sink: str) -> str:
    """The key of the last save that has found its batch decided."""
    return f"{sink}/found"


def aborted_key(sink: str) -> str:
    """The key of the mark up to which undecided transactions have been aborted."""
    return f"{sink}/aborted"


def owner_key(sink: str) -> str:
    """The key of the mark that says which query the sink belongs to, and in which topic its decisions are."""
    return f"{sink}/owner"


def override_key(sink: str, decision_id: str) -> str:
    """The key of the record that an option has put a decision aside or accepted it. Each stays in a compacted topic."""
    return f"{sink}/override/{decision_id}"


def ledger_keys(sink: str) -> tuple[str, str, str, str, str]:
    """The keys of a sink's decision and of its marks, in the order of `decisions.latest_of`."""
    return decision_key(sink), done_key(sink), aborted_key(sink), found_key(sink), owner_key(sink)
