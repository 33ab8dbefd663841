"""Exceptions that nobody foresaw, raised inside brokers: where work starts by itself, where a coordinator takes records
in, before and after an operation on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any
from unittest import mock

from fencepost.broker.group.shard import GroupShard
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.supervision import Place
from fencepost.broker.transaction.shard import TransactionShard
from tests.simulation.loop import Crash, Process, current_process

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.disk import Operation


class Unforeseen(Exception):  # noqa: N818  # of a class that no code of the broker names
    """What is raised."""


class Moment(Enum):
    """Where it is raised."""

    PLACE = "where work starts by itself"
    APPLICATION = "where a coordinator takes in what is in its log"
    BEFORE_OPERATION = "before an operation on the disk"
    AFTER_OPERATION = "after an operation on the disk"


class Strike:
    """One exception that is to come. struck: called when it is raised, with where that was.

    process: in which it is raised. left_count: at how many such moments it is not raised yet.
    """

    def __init__(self, process: Process, moment: Moment, left_count: int, struck: Callable[[str], None]) -> None:
        self.process = process
        self.moment = moment
        self.left_count = left_count
        self.has_struck = False
        self._struck = struck

    def pass_by(self, where: str) -> None:
        """Such a moment has come. Raises Unforeseen if it is the one."""
        self.left_count -= 1
        if self.left_count <= 0 and not self.has_struck:
            self.has_struck = True
            self._struck(where)
            raise Unforeseen(f"planted: {where}")


PENDING: dict[Process, Strike] = {}
"""Those of processes in which one is to come."""


def strike_disk(broker: SimulatedBroker, strike: Strike) -> None:
    """Have it raised around an operation on a broker's disk; metadata are another store's matter."""

    def around(operation: Operation) -> None:
        if operation.kind != "metadata" and not strike.process.is_dead and broker.process is strike.process:
            if strike.has_struck:
                return
            strike.pass_by(f"{strike.moment.value}: {operation}")

    if strike.moment is Moment.BEFORE_OPERATION:
        broker.before = around
    else:
        broker.after = around


def _pass_by(moment: Moment, where: str) -> None:
    process = current_process()
    strike = PENDING.get(process) if process is not None else None
    if strike is not None and strike.moment is moment:
        strike.pass_by(where)


@contextmanager
def may_happen() -> Iterator[None]:
    """While it is entered, brokers meet what `PENDING` holds; and what kills a process is no failure of a place."""
    callback, start, start_retrying = Place.callback, Place.start, Place.start_retrying

    def planted_callback(place: Place, function: Callable[..., object], **options: Any) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            _pass_by(Moment.PLACE, place.name)
            function(*arguments)

        return callback(place, call, **options)

    async def planted_work(place: Place, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            _pass_by(Moment.PLACE, place.name)
        except Unforeseen:
            work.close()
            raise
        return await work

    def planted_start(place: Place, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        is_retrying = getattr(work, "__name__", "") == "_retry"  # what it does is planted in itself
        return start(place, work if is_retrying else planted_work(place, work), **options)

    def planted_start_retrying(place: Place, make_work: Callable[[], Any], **options: Any) -> Any:
        return start_retrying(place, lambda: planted_work(place, make_work()), **options)

    with ExitStack() as patches:
        for name, planted in (
            ("callback", planted_callback),
            ("start", planted_start),
            ("start_retrying", planted_start_retrying),
        ):
            patches.enter_context(mock.patch.object(Place, name, planted))
        patches.enter_context(mock.patch.object(supervision, "NOT_FAILURES", (*supervision.NOT_FAILURES, Crash)))
        for shard in (TransactionShard, GroupShard):
            for name in ("apply", "apply_decided", "apply_marker"):
                if hasattr(shard, name):
                    patches.enter_context(mock.patch.object(shard, name, _planted_application(getattr(shard, name))))
        try:
            yield
        finally:
            PENDING.clear()


def _planted_application(apply: Callable[..., None]) -> Callable[..., None]:
    def planted(*arguments: Any, **named: Any) -> None:
        _pass_by(Moment.APPLICATION, apply.__qualname__)
        apply(*arguments, **named)

    return planted
