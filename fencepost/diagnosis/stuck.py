"""Causes of a last stable offset that does not move: a sentence, a chain down to the client, the remedy. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fencepost.diagnosis.lag import Lag
from fencepost.diagnosis.words import counted, duration

ONGOING: Final = "Ongoing"
"""The state in which nothing is decided yet."""
OPEN_STATES: Final = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})
UNLIMITED_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of transactions in two phases (KIP-939), which never time out."""
SWEEP_MS: Final = 10_000
"""Interval at which brokers search for transactions past their time-outs."""


class Cause(Enum):
    """Why the last stable offset is where it is. A transaction is as its coordinator has it, in Kafka's words."""

    NOT_STUCK = "not_stuck"
    ONGOING = "ongoing"  # within its time-out
    TIMED_OUT = "timed_out"  # past it, and not aborted yet
    TWO_PHASE = "two_phase"  # waits for a decision without a time-out
    PREPARE_COMMIT = "prepare_commit"  # decided, but markers are missing
    PREPARE_ABORT = "prepare_abort"
    HANGING = "hanging"  # no coordinator knows it
    COORDINATOR_NOT_AVAILABLE = "coordinator_not_available"  # a coordinator has not answered
    NOT_DURABLE = "not_durable"  # no transaction is open: the end of one is not durable yet
    OFFLINE = "offline"  # the partition itself does not answer


PREPARED: Final = {"PrepareCommit": Cause.PREPARE_COMMIT, "PrepareAbort": Cause.PREPARE_ABORT}


class Remedy(Enum):
    """A step that a person can take."""

    WAIT = "wait"
    ABORT = "abort"  # by the coordinator
    ABORT_HANGING = "abort hanging"  # a marker on this partition
    LOOK_AT_BROKER = "look at the broker"
    RELOAD = "reload"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open in the partition, by the partition's own state. Times in ms since 1970; -1 unknown.

    began_ms: the time of its first record here.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_write_ms: int
    coordinator_epoch: int
    began_ms: int = -1


@dataclass(frozen=True)
class CoordinatorView:
    """The transaction's coordinator's state of the producer's transactional id. started_ms: -1 unknown."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: Collection[tuple[str, int]]

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms >= UNLIMITED_TIMEOUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """The time of its time-out; None if it has none: it is decided, is two-phase, or its start is unknown."""
        if self.state != ONGOING or self.is_two_phase or self.started_ms < 0:
            return None
        return self.started_ms + self.timeout_ms

    def left_ms(self, now_ms: int) -> int | None:
        """The time until it times out, negative when it should have; None if it does not time out."""
        return None if self.deadline_ms is None else self.deadline_ms - now_ms

    def is_of(self, opened: OpenTransaction, place: tuple[str, int]) -> bool:
        """Whether this is the open transaction of a partition."""
        return self.producer_id == opened.producer_id and self.state in OPEN_STATES and place in self.partitions


@dataclass(frozen=True)
class Client:
    """The client with a producer id, as the broker's HTTP port reports it. Empty text if it does not report it."""

    address: str = ""
    client_id: str = ""
    software: str = ""
    principal: str = ""
    is_connected: bool | None = None
    last_seen_ms: int = -1


@dataclass(frozen=True)
class WaitingGroup:
    """A group that has read up to a transaction, and waits."""

    group_id: str
    lag: Lag


@dataclass(frozen=True)
class Facts:
    """All that could be learnt. coordinator_error: why no coordinator could be asked, None if all answered.

    open: the partition's open transactions; waiting: groups for which something is blocked.
    committed_behind: committed records of others behind the last stable offset; None if not counted.
    """

    topic: str
    partition: int
    now_ms: int
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    partition_error: str | None = None
    open: Sequence[OpenTransaction] = ()
    coordinator: CoordinatorView | None = None
    coordinator_error: str | None = None
    client: Client | None = None
    client_missing: str = ""
    waiting: Sequence[WaitingGroup] = ()
    own_records: int | None = None
    committed_behind: int | None = None

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(frozen=True)
class Link:
    """One link of the chain. kind: partition, transaction, producer, transactional id, client."""

    kind: str
    name: str
    details: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True)
class Explanation:
    """The answer. `advice` has a sentence per remedy."""

    cause: Cause
    sentence: str
    chain: tuple[Link, ...]
    advice: tuple[tuple[Remedy, str], ...]
    holder: OpenTransaction | None = None
    consequences: tuple[str, ...] = field(default=())


def holder_of(opened: Iterable[OpenTransaction], last_stable_offset: int) -> OpenTransaction | None:
    """The transaction that holds the last stable offset; None if that is kept there by an end that is not durable."""
    first = min(opened, key=lambda one: one.first_offset, default=None)
    return first if first is not None and first.first_offset <= last_stable_offset else None


def cause_of(
    opened: OpenTransaction,
    place: tuple[str, int],
    coordinator: CoordinatorView | None,
    coordinator_error: str | None,
    now_ms: int,
) -> Cause:
    """Why an open transaction of a partition has not ended. coordinator_error: None if all coordinators answered."""
    if coordinator is None:
        return Cause.HANGING if coordinator_error is None else Cause.COORDINATOR_NOT_AVAILABLE
    if not coordinator.is_of(opened, place):
        return Cause.HANGING
    if coordinator.state in PREPARED:
        return PREPARED[coordinator.state]
    if coordinator.is_two_phase:
        return Cause.TWO_PHASE
    left_ms = coordinator.left_ms(now_ms)
    return Cause.TIMED_OUT if left_ms is not None and left_ms < 0 else Cause.ONGOING


def began_ms(opened: OpenTransaction, place: tuple[str, int], coordinator: CoordinatorView | None) -> int | None:
    """When an open transaction began: its coordinator's time, else that of its first record, else of its last write."""
    if coordinator is not None and coordinator.started_ms >= 0 and coordinator.is_of(opened, place):
        return coordinator.started_ms
    return next((time_ms for time_ms in (opened.began_ms, opened.last_write_ms) if time_ms >= 0), None)


def explain(facts: Facts) -> Explanation:
    """Explain from the facts why the last stable offset does not move."""
    where = f"{facts.topic}-{facts.partition}"
    if facts.partition_error is not None:
        reason = facts.partition_error.rstrip(".")
        return Explanation(
            Cause.OFFLINE,
            f"{where} does not answer: {reason}. Nobody reads or writes it until it is served again.",
            (Link("partition", where, (reason,)),),
            ((Remedy.LOOK_AT_BROKER, "Look at the log of the broker that leads it: it says why it is offline."),),
        )
    behind = facts.high_watermark - facts.last_stable_offset
    if behind <= 0:
        return Explanation(
            Cause.NOT_STUCK,
            f"{where} is not stuck: read_committed readers reach its end, offset {facts.high_watermark:,}.",
            (_partition_link(facts),),
            (),
        )
    holder = holder_of(facts.open, facts.last_stable_offset)
    start = f"{where}: read_committed readers stop at offset {facts.last_stable_offset:,}; {counted(behind, 'offset')}"
    verb = "waits" if behind == 1 else "wait"
    if holder is None:
        return Explanation(
            Cause.NOT_DURABLE,
            f"{start} {verb} behind it, and no transaction is open there: one has just ended, or its end is not "
            "durable yet.",
            (_partition_link(facts),),
            (
                (Remedy.RELOAD, "Look again. A transaction that ended a moment ago is gone by then."),
                (Remedy.LOOK_AT_BROKER, "If it stays so, the broker does not get on: look at its log and its disk."),
            ),
            consequences=tuple(_consequences(facts)),
        )
    cause = cause_of(holder, facts.place, facts.coordinator, facts.coordinator_error, facts.now_ms)
    since_ms = began_ms(holder, facts.place, facts.coordinator)
    since = f", for {duration(facts.now_ms - since_ms)}" if since_ms is not None else ""
    return Explanation(
        cause,
        f"{start} {verb} behind it{since}. {_because(cause, facts, holder)}",
        tuple(_chain(facts, holder)),
        tuple(_advice(cause, facts, holder)),
        holder,
        tuple(_consequences(facts)),
    )


def _left(facts: Facts) -> int:
    left_ms = None if facts.coordinator is None else facts.coordinator.left_ms(facts.now_ms)
    return left_ms or 0


def _because(cause: Cause, facts: Facts, holder: OpenTransaction) -> str:
    known = facts.coordinator
    name = known.transactional_id if known is not None else ""
    match cause:
        case Cause.ONGOING:
            return f"The transaction of {name} is still open, and has {duration(_left(facts))} left."
        case Cause.TIMED_OUT:
            return (
                f"The transaction of {name} is past its time-out by {duration(-_left(facts))}; "
                f"its coordinator looks every {SWEEP_MS // 1000} s and should have aborted it."
            )
        case Cause.PREPARE_COMMIT | Cause.PREPARE_ABORT:
            decided = "a commit" if cause is Cause.PREPARE_COMMIT else "an abort"
            return f"The transaction of {name} is decided ({decided}), but its marker has not reached this partition."
        case Cause.TWO_PHASE:
            return (
                f"The transaction of {name} is one of two phases: it has no time-out, and waits for its "
                "application's decision."
            )
        case Cause.COORDINATOR_NOT_AVAILABLE:
            return f"Its coordinator cannot be asked: {facts.coordinator_error}."
        case _:
            return (
                f"The transaction of producer {holder.producer_id} hangs: no coordinator knows it, "
                "so nobody will ever end it."
            )


def _partition_link(facts: Facts) -> Link:
    details = (
        f"offsets {facts.log_start_offset:,} to {facts.high_watermark:,}",
        f"stable up to {facts.last_stable_offset:,}",
    )
    return Link("partition", f"{facts.topic}-{facts.partition}", details)


def _chain(facts: Facts, holder: OpenTransaction) -> Sequence[Link]:
    own = () if facts.own_records is None else (counted(facts.own_records, "record"),)
    open_for_others = len(facts.open) - 1
    known = facts.coordinator
    partitions = () if known is None else (counted(len(known.partitions), "partition"),)
    links = [
        _partition_link(facts),
        Link("transaction", f"open from offset {holder.first_offset:,}", own + partitions),
        Link(
            "producer",
            f"{holder.producer_id}:{holder.producer_epoch}",
            (f"last wrote {duration(facts.now_ms - holder.last_write_ms)} ago",) if holder.last_write_ms >= 0 else (),
        ),
    ]
    if known is None:
        reason = facts.coordinator_error or "no coordinator knows this producer"
        links.append(Link("transactional id", "unknown", (reason,), missing=True))
    else:
        timeout = "no time-out" if known.is_two_phase else f"time-out {duration(known.timeout_ms)}"
        left = known.left_ms(facts.now_ms)
        rest: tuple[str, ...] = ()
        if left is not None:
            rest = (f"{duration(left)} left",) if left >= 0 else (f"{duration(-left)} over it",)
        links.append(Link("transactional id", known.transactional_id, (f"state {known.state}", timeout, *rest)))
    links.append(_client_link(facts))
    if open_for_others > 0:
        links[1] = Link(
            "transaction", links[1].name, (*links[1].details, f"{counted(open_for_others, 'other')} open behind it")
        )
    return links


def _client_link(facts: Facts) -> Link:
    client = facts.client
    if client is None:
        return Link("client", "not known", (facts.client_missing,) if facts.client_missing else (), missing=True)
    details = [text for text in (client.software, client.principal, client.address) if text]
    if client.is_connected is not None:
        details.append("connection open" if client.is_connected else "connection closed")
    if client.last_seen_ms >= 0:
        details.append(f"last request {duration(facts.now_ms - client.last_seen_ms)} ago")
    return Link("client", client.client_id or client.address or "without a client id", tuple(details))


def _advice(cause: Cause, facts: Facts, holder: OpenTransaction) -> Sequence[tuple[Remedy, str]]:
    known = facts.coordinator
    name = known.transactional_id if known is not None else ""
    abort = Remedy.ABORT, f"Abort it now: this fences {name}; its producer gets ProducerFenced at its next request."
    match cause:
        case Cause.ONGOING:
            return (
                Remedy.WAIT,
                f"Wait: it is aborted by itself in {duration(_left(facts))}, if nothing ends it before.",
            ), abort
        case Cause.TIMED_OUT:
            return (Remedy.WAIT, "Wait for the next sweep of its coordinator."), abort
        case Cause.PREPARE_COMMIT | Cause.PREPARE_ABORT:
            return (
                (Remedy.WAIT, "Wait: the coordinator writes the marker again and again until it succeeds."),
                (Remedy.LOOK_AT_BROKER, "If it stays so, look whether all partitions of the transaction have leaders."),
            )
        case Cause.TWO_PHASE:
            return (Remedy.WAIT, "Let the application decide: it commits or aborts when it is up again."), abort
        case Cause.COORDINATOR_NOT_AVAILABLE:
            return ((Remedy.RELOAD, "Look again when the coordinator has loaded."),)
        case _:
            marker = f"Abort it on this partition: an abort marker for producer {holder.producer_id} is written."
            return ((Remedy.ABORT_HANGING, f"{marker} Nothing else would."),)


def _consequences(facts: Facts) -> Sequence[str]:
    said = []
    if facts.waiting:
        names = [f"{one.group_id} (blocked: {one.lag.blocked or 0:,})" for one in facts.waiting[:5]]
        more = f" and {len(facts.waiting) - 5:,} more" if len(facts.waiting) > 5 else ""
        said.append(f"Waiting for it: {', '.join(names)}{more}.")
    if facts.committed_behind:
        said.append(f"Behind it wait {counted(facts.committed_behind, 'record')} that others have committed.")
    return said
