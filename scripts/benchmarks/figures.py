"""What a figure is: something that one round measures on one broker, in samples that can be compared over rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

Sizes = Mapping[str, int]
Say = Callable[[str], None]


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


class BrokerEndedError(Exception):
    """A broker's process ended by itself; carries the last that it wrote."""


class Broker(Protocol):
    """A broker as a process, on a data directory of its own."""

    @property
    def address(self) -> tuple[str, int]: ...
    def insist_on_running(self) -> None:
        """Raises BrokerEndedError."""
        ...

    def resident_bytes(self) -> int: ...
    def cpu_s(self) -> float: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> float: ...
    def events(self, name: str) -> list[dict[str, object]]: ...


class Subject(Protocol):
    """A kind of broker in one setting: what several figures, and several kinds side by side, are measured on."""

    @property
    def name(self) -> str: ...

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> Broker:
        """Start a process and do not wait for it."""
        ...


@dataclass(frozen=True)
class Round:
    """What a figure measures with, once.

    sizes:   how much of everything; a figure's own, either in full or small enough for a test.
    scratch: a directory that is empty before and removed after.
    cache:   where data that took long to prepare is kept between runs.
    say:     tells the user what is being done.
    """

    subject: Subject
    sizes: Sizes
    scratch: Path
    cache: Path
    say: Say


@dataclass(frozen=True)
class Figure:
    """One line of the table that `--only` chooses from.

    sizes, small_sizes: in full, and those with which it runs through in seconds.
    """

    name: str
    about: str
    measure: Callable[[Round], Iterable[Sample]]
    sizes: Sizes
    small_sizes: Sizes
    targets: tuple[Target, ...] = field(default=())
