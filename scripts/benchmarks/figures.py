"""What a figure is: something that one round measures on one broker, in samples that can be compared over rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

Sizes = Mapping[str, int]
Say = Callable[[str], None]

DURABLE, PAGE_CACHE, REFERENCE = "fencepost", "fencepost-page-cache", "kafka"
"""The names of the subjects that are compared; ratios are to the reference."""
TWO_PROCESSES = "fencepost-two-processes"
"""In the page cache, as two processes that share the partitions."""
DURABLE_REFERENCE = "kafka-durable"
"""The reference when it syncs each batch before it replies."""
LIMIT, LIMIT_ON_DISK = "limit", "limit-on-disk"
"""What is in no broker's way: a server that does the least, in the page cache and on the disk."""
OURS = (DURABLE, PAGE_CACHE, TWO_PROCESSES, LIMIT, LIMIT_ON_DISK)
"""What is divided by the others."""
SUBJECTS_ON_DISK = (DURABLE, LIMIT_ON_DISK)
"""What promises the same as the durable reference: only these are divided by it."""


class Sample(NamedTuple):
    """One measured value.

    quantity: what was measured, such as `first Produce answered`.
    case:     under which conditions, such as `10,000 open transactions`; empty where there is only one.
    """

    quantity: str
    value: float
    unit: str
    case: str = ""


class Target(NamedTuple):
    """What the median of a quantity must not be above, or below, in each case."""

    quantity: str
    bound: float
    is_lower_bound: bool = False

    def is_met(self, median: float) -> bool:
        return median >= self.bound if self.is_lower_bound else median <= self.bound


class RatioTarget(NamedTuple):
    """What the median of the rounds' ratios of one subject to the reference must not be below, or above.

    case: the one that it is about; empty for each.
    """

    quantity: str
    bound: float
    subject: str = PAGE_CACHE
    is_lower_bound: bool = False
    case: str = ""

    def is_met(self, median: float) -> bool:
        return median >= self.bound if self.is_lower_bound else median <= self.bound


class ResidentMemory(NamedTuple):
    """total_bytes:   with pages of files that are mapped.
    private_bytes: without them: what the kernel could not drop."""

    total_bytes: int
    private_bytes: int


class BrokerEndedError(Exception):
    """A broker's process ended by itself; carries the last that it wrote."""


class Broker(Protocol):
    """A broker as a process, on its own data directory."""

    @property
    def address(self) -> tuple[str, int]: ...
    def require_running(self) -> None:
        """Raises BrokerEndedError."""
        ...

    def resident_bytes(self) -> int: ...
    def resident_memory(self) -> ResidentMemory: ...
    def cpu_s(self) -> float:
        """User and system time so far; not a number where that cannot be known."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> float: ...
    def events(self, name: str) -> list[dict[str, object]]: ...


class Subject(Protocol):
    """A kind of broker in one setting: what several figures, and several kinds side by side, are measured on."""

    @property
    def name(self) -> str: ...
    @property
    def can_be_launched(self) -> bool:
        """Whether `launch` starts a process; otherwise it runs already, and figures that start brokers pass over it."""
        ...

    @property
    def is_to_be_warmed(self) -> bool:
        """Whether it becomes faster with what it does."""
        ...

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> Broker:
        """Start a process and do not wait for it."""
        ...


def _no_broker() -> Broker:
    raise LookupError("no broker is kept running for this round")


@dataclass(frozen=True)
class Round:
    """What a figure measures with, once.

    sizes:   how much of everything; a figure's own, either in full or small enough for a test.
    scratch: a directory that is empty before and removed after.
    cache:   where data that took long to prepare is kept between runs.
    say:     tells the user what is being done.
    number:  which round of the figure, from 1.
    running: the subject as one broker that stays up for all rounds of all figures, and is warm.
    """

    subject: Subject
    sizes: Sizes
    scratch: Path
    cache: Path
    say: Say
    number: int = 1
    running: Callable[[], Broker] = _no_broker

    @property
    def bytes_to_produce(self) -> int:
        """Fewer for the durable reference, which writes some megabytes a second in batches of 16 KB."""
        return self.sizes["synced_bytes" if self.subject.name == DURABLE_REFERENCE else "total_bytes"]


@dataclass(frozen=True)
class Figure:
    """One line of the table that `--only` chooses from.

    sizes, small_sizes: in full, and those with which it runs through in seconds.
    subjects:       the names of those that it is measured on, where they take part.
    needs_launches: whether it starts brokers of its own, so that one that only has an address is passed over.
    is_headline:    whether it belongs to the short table that is measured first.
    needs_java:     whether its clients do.
    most_rounds:    for cases that take so long that a few rounds must suffice.
    in_the_way:     the cause that keeps brokers, or this one, from a target; reported where it is missed.
    slower:         why a throughput is below the reference's, in plain words; reported where one is.
    """

    name: str
    about: str
    measure: Callable[[Round], Iterable[Sample]]
    sizes: Sizes
    small_sizes: Sizes
    targets: tuple[Target, ...] = field(default=())
    ratio_targets: tuple[RatioTarget, ...] = field(default=())
    subjects: tuple[str, ...] = (DURABLE,)
    needs_launches: bool = True
    is_headline: bool = False
    needs_java: bool = False
    most_rounds: int = 1_000
    in_the_way: str = ""
    slower: str = ""

    def is_about(self, subject: Subject) -> bool:
        """Whether it is measured on a subject: peers, which bear their address as a name, are compared like Kafka."""
        if not subject.can_be_launched:
            return not self.needs_launches and len(self.subjects) > 1
        return subject.name in self.subjects


COMPARED = (DURABLE, PAGE_CACHE, REFERENCE)
"""For `Figure.subjects`: side by side, in both settings."""
COMPARED_BOTH_WAYS = (*COMPARED, DURABLE_REFERENCE)
"""The same, and the reference in both settings, too."""
COMPARED_WITH_LIMIT = (*COMPARED_BOTH_WAYS, LIMIT, LIMIT_ON_DISK)
"""The same, and what clients, system and event loop take by themselves."""
