"""Logs that startup deferred, in the order in which they are opened while clients are served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.broker.kernel.topic_partition import TopicPartition


class DeferredLogs:
    """The deferred logs of partitions, each until it is served; those that a client asked for come first.

    A log that could not be opened stays, and is tried again when a client asks for it.
    """

    __slots__ = ("_failed", "_opening", "_waiting", "_wanted")

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, None] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._opening: set[TopicPartition] = set()
        self._failed: set[TopicPartition] = set()

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._waiting or name in self._opening or name in self._failed

    def __len__(self) -> int:
        return len(self._waiting) + len(self._opening) + len(self._failed)

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from self._waiting
        yield from self._opening
        yield from self._failed

    @property
    def has_next(self) -> bool:
        return bool(self._waiting)

    def is_waiting(self, name: TopicPartition) -> bool:
        """Whether its opening has not begun."""
        return name in self._waiting

    def has_failed(self, name: TopicPartition) -> bool:
        """Whether it could not be opened, and no client has asked for it since."""
        return name in self._failed

    def add(self, names: Iterable[TopicPartition]) -> None:
        self._waiting.update(dict.fromkeys(names))

    def prioritize(self, name: TopicPartition) -> None:
        """Open a log before those that no client has asked for."""
        if name in self._failed:
            self._failed.remove(name)
            self._waiting[name] = None
        if name in self._waiting:
            self._wanted[name] = None

    def begin_opening(self, name: TopicPartition | None = None) -> TopicPartition:
        """Begin to open a log, the next if none is named; return its name."""
        if name is None:
            name = next(iter(self._wanted or self._waiting))
        del self._waiting[name]
        self._wanted.pop(name, None)
        self._opening.add(name)
        return name

    def fail(self, name: TopicPartition) -> None:
        """Note that a log could not be opened."""
        self._opening.discard(name)
        self._failed.add(name)

    def discard(self, name: TopicPartition) -> None:
        """Remove a log that is served, or gone."""
        self._waiting.pop(name, None)
        self._wanted.pop(name, None)
        self._opening.discard(name)
        self._failed.discard(name)
