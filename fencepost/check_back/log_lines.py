"""Log lines of a running check-back for operators, made from its records. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from fencepost.check_back.records import Entry


class Level(Enum):
    """How much a line matters."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLine(NamedTuple):
    """A line: its event, and fields."""

    level: Level
    event: str
    fields: dict[str, Any]


def line_of(entry: Entry) -> LogLine | None:
    """The line of a record that was written; None if it is worth none."""
    value = entry.value
    if value is None:
        return None
    if entry.key.startswith("resolver/") and "up" in value:
        name = entry.key.removeprefix("resolver/")
        if not value["asked"]:
            return None
        if value["up"]:
            return LogLine(Level.INFO, "resolver_reachable", {"resolver": name})
        return LogLine(Level.WARNING, "resolver_unreachable", {"resolver": name, "reason": value["reason"]})
    about = {name: value.get(name) for name in ("id", "token", "resolver")}
    event = value.get("event")
    if event == "question":
        answered = {"answer": value["answer"], "checks": value["checks"], "latency_ms": value["latency_ms"]}
        return LogLine(Level.DEBUG, "source_asked", {**about, **answered, "reason": value["reason"]})
    if event == "decision" and value["decision"] == "park":
        remedy = f"`fencepost transactions commit {value['id']}`, `abort` or `ask-again`"
        return LogLine(Level.WARNING, "transaction_parked", {**about, "checks": value["checks"], "remedy": remedy})
    if event == "decision":
        return LogLine(Level.INFO, "transaction_decided", {**about, "decision": value["decision"], "by": value["who"]})
    if event == "end":
        ended = {**about, "outcome": value["outcome"], "by": value["who"]}
        if value["decision"] in (None, value["outcome"]):
            return LogLine(Level.INFO, "transaction_in_doubt_ended", ended)
        remedy = "compare both sides, and mend one"
        return LogLine(
            Level.ERROR, "outcome_contradicts_decision", {**ended, "decision": value["decision"], "remedy": remedy}
        )
    return None
