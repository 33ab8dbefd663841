"""Serves as `fencepost serve` does, and kills this process with SIGKILL at a named point of its work:
`python -m tests.support.killed_at_point ORDER ARGUMENT…`.

ORDER is a file, which may be written at any time: the name of a point, and how often it is passed before. The process
that comes to it removes the file and dies, so of several that have the same order only the first one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

CLUSTER: Final = "fencepost.broker.cluster"
LOOPS_UNTIL_SENT: Final = 3
"""Turns of the event loop after which what a statement's client has written is on its way."""


class Point(NamedTuple):
    """Where a process dies: before or after a call of a function, or, of a coroutine, once it has sent its request."""

    when: str  # before, after, sent
    module: str
    name: str


POINTS: Final = {
    "before a flush is committed": Point("before", f"{CLUSTER}.postgres.tail", "PostgresTail.commit"),
    "when a flush is sent": Point("sent", f"{CLUSTER}.postgres.tail", "PostgresTail.commit"),
    "after a flush is committed": Point("after", f"{CLUSTER}.postgres.tail", "PostgresTail.commit"),
    "before an object of a flush is put": Point("before", f"{CLUSTER}.objects.s3", "S3Objects.put"),
    "after an object of a flush is put": Point("after", f"{CLUSTER}.objects.s3", "S3Objects.put"),
    "before a segment is rolled to be sealed": Point("before", f"{CLUSTER}.remote.upload", "SegmentUpload._roll"),
    "before a segment is uploaded": Point("before", f"{CLUSTER}.remote.segment_objects", "SegmentObjects.upload"),
    "between two files of a segment": Point("after", f"{CLUSTER}.objects.s3", "S3Objects.put_file"),
    "before the rows of a sealed segment are swapped": Point(
        "before", f"{CLUSTER}.postgres.segment_rows", "PostgresRemoteLogMetadata.replace"
    ),
    "when the rows of a sealed segment are swapped": Point(
        "sent", f"{CLUSTER}.postgres.segment_rows", "PostgresRemoteLogMetadata.replace"
    ),
    "after the rows of a sealed segment are swapped": Point(
        "after", f"{CLUSTER}.postgres.segment_rows", "PostgresRemoteLogMetadata.replace"
    ),
    "before a segment is brought": Point("before", f"{CLUSTER}.remote.segment_objects", "SegmentObjects.download"),
    "after a segment is brought": Point("after", f"{CLUSTER}.remote.segment_objects", "SegmentObjects.download"),
    "after a segment is put in its place": Point(
        "after", f"{CLUSTER}.remote.segment_objects", "Downloaded.put_in_place"
    ),
    "before a move is stored": Point("before", f"{CLUSTER}.postgres.lease_store", "PostgresLeaseStore.move"),
    "when a move is sent": Point("sent", f"{CLUSTER}.postgres.lease_store", "PostgresLeaseStore.move"),
    "after a move is stored": Point("after", f"{CLUSTER}.postgres.lease_store", "PostgresLeaseStore.move"),
    "before a take-over": Point("before", f"{CLUSTER}.postgres.lease_store", "PostgresLeaseStore.take_over"),
    "within a take-over, once the fence is raised": Point("after", f"{CLUSTER}.postgres.lease_store", "_raise_fence"),
    "after a take-over": Point("after", f"{CLUSTER}.postgres.lease_store", "PostgresLeaseStore.take_over"),
    "before logs are restored": Point("before", f"{CLUSTER}.tail.restore", "TailRestore.prepare"),
    "while logs are restored": Point("before", f"{CLUSTER}.tail.restore", "TailRestore._write_rows"),
    "after logs are restored": Point("after", f"{CLUSTER}.tail.restore", "TailRestore.prepare"),
    "before garbage is found": Point("before", f"{CLUSTER}.postgres.segment_rows", "PostgresGarbage.find"),
    "after garbage is found": Point("after", f"{CLUSTER}.postgres.segment_rows", "PostgresGarbage.find"),
    "after objects are removed, while they are still garbage": Point(
        "after", f"{CLUSTER}.objects.s3", "S3Objects.delete"
    ),
    "after garbage is removed": Point("after", f"{CLUSTER}.postgres.segment_rows", "PostgresGarbage.removed"),
    "before a topic's deletion is stored": Point(
        "before", f"{CLUSTER}.postgres.metadata_store", "PostgresMetadataStore.delete_topic"
    ),
    "when a topic's deletion is sent": Point(
        "sent", f"{CLUSTER}.postgres.metadata_store", "PostgresMetadataStore.delete_topic"
    ),
    "after a topic's deletion is stored": Point(
        "after", f"{CLUSTER}.postgres.metadata_store", "PostgresMetadataStore.delete_topic"
    ),
}


class Order:
    """The file. Of a point that is to be passed before, the calls are counted as long as the order is the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = ""
        self._passed = 0

    def come_to(self, name: str) -> None:
        """Die, if that is ordered here."""
        try:
            order = self._path.read_text()
        except FileNotFoundError:
            return
        point, _, passed = order.rpartition("|")
        if point != name:
            return
        if order != self._seen:
            self._seen, self._passed = order, 0
        if self._passed < int(passed):
            self._passed += 1
            return
        with contextlib.suppress(FileNotFoundError):  # another process was first
            self._path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def watched(function: Callable[..., Any], name: str, when: str, order: Order) -> Callable[..., Any]:
    """The function, with a look at the order before, after, or once it has sent its request."""
    if not inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if when == "before":
                order.come_to(name)
            result = function(*arguments, **named)
            if when == "after":
                order.come_to(name)
            return result

        return call

    @functools.wraps(function)
    async def wait(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            order.come_to(name)
        if when == "sent":
            task = asyncio.ensure_future(function(*arguments, **named))
            for _ in range(LOOPS_UNTIL_SENT):
                await asyncio.sleep(0)
            order.come_to(name)
            return await task
        result = await function(*arguments, **named)
        if when == "after":
            order.come_to(name)
        return result

    return wait


def watch(order: Order, points: Mapping[str, Point] = POINTS) -> None:
    """Watch points of this process."""
    for name, (when, module, path) in points.items():
        owner: Any = importlib.import_module(module)
        *owners, function = path.split(".")
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, function, watched(getattr(owner, function), name, when, order))


def sweep_at_once() -> None:
    """Remove garbage as soon as it is found, and look for it all the time: a test does not wait for minutes."""
    from fencepost.broker.cluster.remote import object_sweep as sweep

    sweep.INTERVAL_S = 0.3  # type: ignore[misc]
    original = sweep.ObjectSweep.__init__

    def without_grace(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **{**named, "grace_s": 0.0})

    sweep.ObjectSweep.__init__ = without_grace  # type: ignore[method-assign]


if __name__ == "__main__":
    watch(Order(Path(sys.argv[1])))
    sweep_at_once()
    sys.argv = ["fencepost", *sys.argv[2:]]
    from fencepost.cli.main import main

    main()
