"""Records of the two topics of the check-back, as JSON. Pure.

`__fencepost_check_back` is compacted. `transaction/TOKEN@START` holds the state of a transaction in doubt,
`resolver/NAME` a resolver and whether it answers, `command/ID` an administrator's command. `fencepost-audit` has one
record for each question, decision and end, under the transactional id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from fencepost.check_back.case import Case, CaseKey, Decider, Decision, Outcome, State
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.settings import Exhausted, ResolverSettings
from fencepost.protocol.checked_json import INT32_MAX, Fields, JsonError, parse_object, shown
from fencepost.two_phase.tokens import Token

STATE_TOPIC: Final = "__fencepost_check_back"
AUDIT_TOPIC: Final = "fencepost-audit"
STATE_CONFIGS: Final = {"cleanup.policy": "compact"}
AUDIT_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": str(30 * 24 * 3_600_000)}
TOPIC_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {STATE_TOPIC: STATE_CONFIGS, AUDIT_TOPIC: AUDIT_CONFIGS}
"""Both have one partition."""

_TRANSACTION, _RESOLVER, _COMMAND = "transaction/", "resolver/", "command/"
ASK_AGAIN: Final = "ask-again"
COMMANDS: Final = (ASK_AGAIN, Outcome.COMMIT.value, Outcome.ABORT.value)
LONGEST_GLOB: Final = 1_000
LONGEST_TOPIC: Final = 249


class Entry(NamedTuple):
    """A record to write. value: None for a tombstone."""

    topic: str
    key: str
    value: Mapping[str, Any] | None

    def encoded_value(self) -> bytes | None:
        return None if self.value is None else json.dumps(self.value, separators=(",", ":")).encode()


class Command(NamedTuple):
    """An administrator's command for an id: `ask-again`; or his own step: `commit`, `abort`."""

    transactional_id: str
    command: str
    token: str | None
    time_ms: int


class ResolverNote(NamedTuple):
    """The journal's entry of a resolver, as `resolver_entry` writes it.

    up: whether it answers. reason: error if it does not.
    """

    ids: tuple[str, ...]
    first_ms: int
    checks_max: int
    exhausted: Exhausted
    up: bool
    reason: str | None


class Journal(NamedTuple):
    """Content of `__fencepost_check_back`. resolvers: entries by name.

    left_out: unreadable entries, not written by a check-back of this version, as `KEY: ERROR`, at most `MOST_NAMED`;
    left_out_count: number of all of them.
    """

    cases: Mapping[CaseKey, Case]
    commands: Sequence[Command]
    resolvers: Mapping[str, ResolverNote]
    left_out: Sequence[str] = ()
    left_out_count: int = 0


MOST_NAMED: Final = 3


# The state topic


def case_entry(case: Case) -> Entry:
    """Return the journal's entry of a transaction in doubt."""
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
    """Read the latest value of each key. Others may write to the topic: unreadable values are left out, and named."""
    cases: dict[CaseKey, Case] = {}
    commands: list[Command] = []
    resolvers: dict[str, ResolverNote] = {}
    left_out: list[str] = []
    left_out_count = 0
    for key, value in records.items():
        if value is None:
            continue
        try:
            if key.startswith(_TRANSACTION):
                case = _case(key, parse_object(value))
                cases[case.key] = case
            elif key.startswith(_COMMAND):
                commands.append(_command(key.removeprefix(_COMMAND), parse_object(value)))
            elif key.startswith(_RESOLVER):
                resolvers[key.removeprefix(_RESOLVER)] = _resolver(parse_object(value))
            else:
                raise JsonError("nothing is known by such a key")
        except ValueError as error:
            left_out_count += 1
            if len(left_out) < MOST_NAMED:
                left_out.append(f"{shown(key)}: {error}")
    commands.sort(key=lambda command: command.time_ms)
    return Journal(cases, commands, resolvers, left_out, left_out_count)


def left_out_words(journal: Journal) -> str | None:
    """Return a sentence that names the entries left out of the journal; None without any."""
    if not journal.left_out_count:
        return None
    more = journal.left_out_count - len(journal.left_out)
    named = "; ".join(journal.left_out) + (f"; and {more} more" if more else "")
    return f"{journal.left_out_count} records of {STATE_TOPIC} cannot be read and are left out: {named}"


def resolver_of(journal: Journal, transactional_id: str) -> str | None:
    """The name of the resolver that the journal names for an id; None if it names none."""
    for name, note in journal.resolvers.items():
        if any(fnmatchcase(transactional_id, glob) for glob in note.ids):
            return name
    return None


def _case(key: str, fields: Fields) -> Case:
    outcome = fields.one_of_or_none("decision", Outcome)
    decision = None if outcome is None else Decision(outcome, fields.one_of("decided_by", Decider))
    state = State.DECIDED if decision is not None else State.PARKED if fields.flag("parked") else State.WAITING
    case = Case(
        Question(
            Token.parse(fields.text("token")),
            fields.time_ms("started_ms"),
            tuple(_partition(text) for text in fields.texts("partitions")),
        ),
        fields.text("resolver"),
        state,
        fields.time_ms("next_ms"),
        checks=fields.whole("checks", 0, INT32_MAX),
        failures=fields.whole("failures", 0, INT32_MAX),
        last_answer=fields.one_of_or_none("last_answer", Answer),
        last_asked_ms=fields.time_ms_or_none("last_asked_ms"),
        decision=decision,
        is_parked=state is State.PARKED,
        is_recorded=True,
    )
    if _key_text(case.key) != key:
        raise JsonError(f"it is about {shown(_key_text(case.key))}")
    return case


def _command(transactional_id: str, fields: Fields) -> Command:
    command = fields.text("command")
    if command not in COMMANDS:
        raise JsonError(f"the command must be one of {', '.join(COMMANDS)}; it is {shown(command)}")
    return Command(transactional_id, command, fields.text_or_none("token"), fields.time_ms("time_ms"))


def _resolver(fields: Fields) -> ResolverNote:
    ids = tuple(fields.texts("ids"))
    if any(len(glob) > LONGEST_GLOB for glob in ids):
        raise JsonError(f"it has a glob of more than {LONGEST_GLOB} characters")
    return ResolverNote(
        ids,
        fields.whole("first_ms"),
        fields.whole("checks_max", 0, INT32_MAX),
        fields.one_of("exhausted", Exhausted),
        fields.flag("up"),
        fields.text_or_none("reason"),
    )


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
    """The end of a transaction: `commit`, `abort`, or `unknown` if its coordinator has forgotten it."""
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
    """Return the audit entry of a decision that an administrator has carried out himself."""
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


def _partition(text: str) -> tuple[str, int]:
    topic, _, digits = text.rpartition("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= INT32_MAX
    if not is_number or not 0 < len(topic) <= LONGEST_TOPIC:
        raise JsonError(f"expected TOPIC-PARTITION, such as orders-0; got {shown(text)}")
    return topic, int(digits)
