"""The two topics of the check-back: what their records say, as JSON. Pure.

`__fencepost_check_back` is compacted. `transaction/TOKEN@START` holds what is known of a transaction in doubt,
`resolver/NAME` a resolver and whether it answers, `command/ID` what an administrator wants. `fencepost-audit` has one
record for each question, decision and end, under the transactional id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from fencepost.check_back.case import Case, CaseKey, Decider, Decision, Outcome, State
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase.tokens import Token

STATE_TOPIC: Final = "__fencepost_check_back"
AUDIT_TOPIC: Final = "fencepost-audit"
STATE_CONFIGS: Final = {"cleanup.policy": "compact"}
AUDIT_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": str(30 * 24 * 3_600_000)}
TOPIC_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {STATE_TOPIC: STATE_CONFIGS, AUDIT_TOPIC: AUDIT_CONFIGS}
"""Both have one partition."""

_TRANSACTION, _RESOLVER, _COMMAND = "transaction/", "resolver/", "command/"
ASK_AGAIN: Final = "ask-again"


class Entry(NamedTuple):
    """A record to write. value: None for a tombstone."""

    topic: str
    key: str
    value: Mapping[str, Any] | None

    def encoded_value(self) -> bytes | None:
        return None if self.value is None else json.dumps(self.value, separators=(",", ":")).encode()


class Command(NamedTuple):
    """What an administrator wants for an id: `ask-again`; or has done himself: `commit`, `abort`."""

    transactional_id: str
    command: str
    token: str | None
    time_ms: int


class Journal(NamedTuple):
    """What `__fencepost_check_back` says. resolvers: by name, as `resolver_entry` writes them."""

    cases: Mapping[CaseKey, Case]
    commands: Sequence[Command]
    resolvers: Mapping[str, Mapping[str, Any]]


# The state topic


def case_entry(case: Case) -> Entry:
    """What is kept of a transaction in doubt."""
    decision = case.decision
    return Entry(
        STATE_TOPIC,
        _key_text(case.key),
        {
            "token": str(case.question.token),
            "started_ms": case.question.started_ms,
            "partitions": _partition_texts(case.question),
            "resolver": case.resolver,
            "checks": case.checks,
            "failures": case.failures,
            "next_ms": case.next_ms,
            "parked": case.is_parked,
            "last_answer": None if case.last_answer is None else case.last_answer.value,
            "last_asked_ms": case.last_asked_ms,
            "decision": None if decision is None else decision.outcome.value,
            "decided_by": None if decision is None else decision.by.value,
        },
    )


def case_tombstone(key: CaseKey) -> Entry:
    return Entry(STATE_TOPIC, _key_text(key), None)


def command_entry(command: Command) -> Entry:
    return Entry(
        STATE_TOPIC,
        _COMMAND + command.transactional_id,
        {"command": command.command, "token": command.token, "time_ms": command.time_ms},
    )


def command_tombstone(transactional_id: str) -> Entry:
    return Entry(STATE_TOPIC, _COMMAND + transactional_id, None)


def resolver_entry(
    settings: ResolverSettings, *, up: bool, reason: str | None, since_ms: int, asked: bool = True
) -> Entry:
    """A resolver, for commands and pages that show it: without the options of its type, which may hold secrets.

    asked: whether it was asked since the start. since_ms: since when it answers, or does not.
    """
    return Entry(
        STATE_TOPIC,
        _RESOLVER + settings.name,
        {
            "ids": list(settings.ids),
            "type": settings.type,
            "first_ms": settings.first_ms,
            "checks_max": settings.checks_max,
            "exhausted": settings.exhausted.value,
            "asked": asked,
            "up": up,
            "reason": reason,
            "since_ms": since_ms,
        },
    )


def resolver_tombstone(name: str) -> Entry:
    return Entry(STATE_TOPIC, _RESOLVER + name, None)


def id_of_key(key: str) -> str | None:
    """The transactional id that a record of `__fencepost_check_back` is about; None if it is about none."""
    if key.startswith(_COMMAND):
        return key.removeprefix(_COMMAND)
    if not key.startswith(_TRANSACTION):
        return None
    token, _, _ = key.removeprefix(_TRANSACTION).rpartition("@")
    return token.partition(":")[2].partition(":")[2] or None


def read_journal(records: Mapping[str, bytes | None]) -> Journal:
    """Read the latest value of each key. What cannot be read, or is of a later version, is left out."""
    cases: dict[CaseKey, Case] = {}
    commands: list[Command] = []
    resolvers: dict[str, Mapping[str, Any]] = {}
    for key, value in records.items():
        fields = _fields(value)
        if fields is None:
            continue
        try:
            if key.startswith(_TRANSACTION):
                case = _case(fields)
                cases[case.key] = case
            elif key.startswith(_COMMAND):
                commands.append(_command(key.removeprefix(_COMMAND), fields))
            elif key.startswith(_RESOLVER) and isinstance(fields.get("ids"), list):
                resolvers[key.removeprefix(_RESOLVER)] = fields
        except (KeyError, TypeError, ValueError):
            continue
    commands.sort(key=lambda command: command.time_ms)
    return Journal(cases, commands, resolvers)


def resolver_of(journal: Journal, transactional_id: str) -> str | None:
    """The name of the resolver that the journal names for an id; None if it names none."""
    for name, fields in journal.resolvers.items():
        if any(fnmatchcase(transactional_id, glob) for glob in fields["ids"]):
            return name
    return None


def _fields(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _case(fields: Mapping[str, Any]) -> Case:
    decision = None
    if fields["decision"] is not None:
        decision = Decision(Outcome(fields["decision"]), Decider(fields["decided_by"]))
    state = State.DECIDED if decision is not None else State.PARKED if fields["parked"] else State.WAITING
    last_answer, last_asked_ms = fields["last_answer"], fields["last_asked_ms"]
    return Case(
        Question(Token.parse(fields["token"]), int(fields["started_ms"]), _partitions(fields["partitions"])),
        str(fields["resolver"]),
        state,
        int(fields["next_ms"]),
        checks=int(fields["checks"]),
        failures=int(fields["failures"]),
        last_answer=None if last_answer is None else Answer(last_answer),
        last_asked_ms=None if last_asked_ms is None else int(last_asked_ms),
        decision=decision,
        is_parked=state is State.PARKED,
        is_recorded=True,
    )


def _command(transactional_id: str, fields: Mapping[str, Any]) -> Command:
    token = fields.get("token")
    return Command(transactional_id, str(fields["command"]), None if token is None else str(token), fields["time_ms"])


def _key_text(key: CaseKey) -> str:
    return f"{_TRANSACTION}{key.token}@{key.started_ms}"


# The audit topic


def asked_entry(
    case: Case, answer: Answer | None, reason: str | None, *, latency_ms: int, now_ms: int, late: bool = False
) -> Entry:
    """A question and its answer. answer: None if the source could not be asked, for a reason.

    late: the transaction was not waiting for it any more, so it changed nothing.
    """
    return _audit(
        case.question,
        now_ms,
        "question",
        Decider.RESOLVER.value,
        resolver=case.resolver,
        answer="unreachable" if answer is None else answer.value,
        reason=reason,
        latency_ms=latency_ms,
        checks=case.checks,
        late=late,
    )


def decided_entry(case: Case, decision: str, by: Decider, now_ms: int) -> Entry:
    """A decision: `commit`, `abort`, `park`, or `ask-again` of an administrator."""
    return _audit(
        case.question,
        now_ms,
        "decision",
        by.value,
        resolver=case.resolver,
        answer=None if case.last_answer is None else case.last_answer.value,
        checks=case.checks,
        decision=decision,
    )


def ended_entry(case: Case, outcome: str, by: Decider, now_ms: int) -> Entry:
    """The end of a transaction: `commit`, `abort`, or `unknown` if its coordinator cannot say any more."""
    return _audit(
        case.question,
        now_ms,
        "end",
        by.value,
        resolver=case.resolver,
        decision=None if case.decision is None else case.decision.outcome.value,
        outcome=outcome,
    )


def administrator_entry(question: Question, decision: str, now_ms: int) -> Entry:
    """What an administrator has decided with a command of his own."""
    return _audit(question, now_ms, "decision", Decider.ADMINISTRATOR.value, decision=decision)


def _audit(question: Question, now_ms: int, event: str, who: str, **fields: object) -> Entry:
    return Entry(
        AUDIT_TOPIC,
        question.token.transactional_id,
        {
            "time_ms": now_ms,
            "event": event,
            "who": who,
            "id": question.token.transactional_id,
            "token": str(question.token),
            "started_ms": question.started_ms,
            "partitions": _partition_texts(question),
            **fields,
        },
    )


def _partition_texts(question: Question) -> list[str]:
    return [f"{topic}-{number}" for topic, number in question.partitions]


def _partitions(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    pairs = (text.rpartition("-") for text in texts)
    return tuple((topic, int(number)) for topic, _, number in pairs)
