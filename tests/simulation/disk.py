"""A disk that crashes, in memory.

The fault model:
- A killed process loses nothing that it has written: the page cache belongs to the machine.
- A power loss keeps, of each file, what was synced and any prefix of what was done to it since (appends and
  truncations, in order); the last append that is kept may be torn at any byte, and the torn rest may read as zeros.
- Of each directory it keeps what was synced and any prefix of what was done to it since (entries made, renamed,
  removed); a file whose entry is lost is gone, even if its bytes were synced.
- A rename from one directory to another is one step: both entries are kept, or neither. A sync of one of the two
  directories has the other one's entry as well, with all that was done to either before: the journal is one.
- `write_file(durable=True)` is durable, with its directory, when it returns.
- A lock belongs to the process that has taken it, and is free when that has ended.
- Any operation can fail, as a disk that is full or broken makes it fail; then it has done nothing. A process can die
  before or after any operation (`before`, `after`).
- A sync takes a random time; what is appended meanwhile is not covered by it.
Several processes may share the disk of one machine (`beside`); a power loss is one of them all (`lose_power`).
Not modelled: bytes that rot while nobody writes them, a sync that fails and yet drops what it was given, and the order
of a journal across directories in other operations.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fencepost.broker.storage.disk import LogFile, StorageError, Volume
from tests.simulation.loop import Crash, Process, current_process, wall_time_ms

TORN_APPEND_PROBABILITY = 0.5
ZEROS_AFTER_TEAR_PROBABILITY = 0.25


class Operation(NamedTuple):
    """One thing that is done to the disk.

    number: counts from 1, over all kinds that change something.
    kind:   open (of a new file), append, truncate, write_file, make_directory, rename, delete or sync.
    path:   the file or directory; of a rename the source; of a sync all paths, with a space between.
    target: of a rename.
    """

    number: int
    kind: str
    path: str
    size_bytes: int
    target: str = ""


class _Append(NamedTuple):
    content: bytes


class _Truncate(NamedTuple):
    size_bytes: int


class _FileNode:
    """A file's bytes as they are now, and as the device has them."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.unsynced: list[_Append | _Truncate] = []
        self.synced_count = 0
        self.last_write_ms = 0

    @property
    def change_count(self) -> int:
        return self.synced_count + len(self.unsynced)

    def append(self, content: bytes) -> None:
        self.content += content
        self.unsynced.append(_Append(content))
        self.last_write_ms = wall_time_ms()

    def truncate(self, size_bytes: int) -> None:
        del self.content[size_bytes:]
        self.unsynced.append(_Truncate(size_bytes))

    def synced(self, change_count: int) -> None:
        """Number of changes, since the file was made, that have reached the device."""
        count = change_count - self.synced_count
        if count > 0:
            self.durable = bytes(_changed(self.durable, self.unsynced[:count]))
            del self.unsynced[:count]
            self.synced_count = change_count

    def lose_power(self, chance: random.Random) -> None:
        kept = self.unsynced[: chance.randint(0, len(self.unsynced))]
        content = _changed(self.durable, kept)
        torn = self.unsynced[len(kept)] if len(kept) < len(self.unsynced) else None
        if isinstance(torn, _Append) and torn.content and chance.random() < TORN_APPEND_PROBABILITY:
            there_bytes = chance.randint(0, len(torn.content))
            content += torn.content[:there_bytes]
            if chance.random() < ZEROS_AFTER_TEAR_PROBABILITY:
                content += bytes(len(torn.content) - there_bytes)
        self.content, self.durable, self.unsynced = content, bytes(content), []


def _changed(content: bytes, changes: Sequence[_Append | _Truncate]) -> bytearray:
    changed = bytearray(content)
    for change in changes:
        if isinstance(change, _Append):
            changed += change.content
        else:
            del changed[change.size_bytes :]
    return changed


class _DirectoryNode:
    """The entries of a directory as they are now, and as the device has them. A removed entry is a None.

    _halves: of renames between this directory and another: how many changes there are here with it, and there.
    """

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.unsynced: list[dict[str, _Node | None]] = []
        self.synced_count = 0
        self._halves: list[tuple[int, _DirectoryNode, int]] = []

    @property
    def change_count(self) -> int:
        return self.synced_count + len(self.unsynced)

    def change(self, changes: dict[str, _Node | None]) -> None:
        """Make, replace and remove entries, all at once."""
        _apply(self.entries, changes)
        self.unsynced.append(changes)

    def move_to(self, other: _DirectoryNode, name: str, new_name: str, node: _Node) -> None:
        """Move an entry to another directory, in one step."""
        other.change({new_name: node})
        self.change({name: None})
        self._halves.append((self.change_count, other, other.change_count))
        other._halves.append((other.change_count, self, self.change_count))

    def synced(self, change_count: int) -> None:
        """Number of changes, since the directory was made, that have reached the device."""
        count = change_count - self.synced_count
        if count > 0:
            for changes in self.unsynced[:count]:
                _apply(self.durable, changes)
            del self.unsynced[:count]
            self.synced_count = change_count
            reached = [half for half in self._halves if half[0] <= change_count]
            self._halves = self._halves[len(reached) :]
            for _, other, count_there in reached:
                other.synced(count_there)

    def lose_power(self, chance: random.Random) -> None:
        self.keep_some(chance)
        self.forget_unsynced(chance)

    def keep_some(self, chance: random.Random) -> None:
        """Of each directory below, have some prefix of what was done to it reach the device."""
        self.synced(self.synced_count + chance.randint(0, len(self.unsynced)))
        for name in sorted(self.durable):
            node = self.durable[name]
            if isinstance(node, _DirectoryNode):
                node.keep_some(chance)

    def forget_unsynced(self, chance: random.Random) -> None:
        self.unsynced = []
        self._halves = []
        self.entries = dict(self.durable)
        for name in sorted(self.entries):
            node = self.entries[name]
            if isinstance(node, _DirectoryNode):
                node.forget_unsynced(chance)
            else:
                node.lose_power(chance)


_Node = _FileNode | _DirectoryNode


def _apply(entries: dict[str, _Node], changes: dict[str, _Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, path: str, node: _FileNode) -> None:
        self._disk = disk
        self._path = path
        self.node = node
        self._is_open = True
        disk.note_open(path, 1)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return len(self.node.content)

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        content = b"".join(buffers)
        with self._disk.operation("append", self._path, len(content)):
            self.node.append(content)

    def read(self, position: int, length_bytes: int) -> memoryview:
        self._disk.require_alive()
        return memoryview(bytes(self.node.content[position : position + length_bytes]))

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        return self.read(position, length_bytes)

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        raise OSError("the machine has no sockets")

    def truncate(self, size_bytes: int) -> None:
        with self._disk.operation("truncate", self._path, size_bytes):
            self.node.truncate(size_bytes)

    def last_write_ms(self) -> int:
        self._disk.require_alive()
        return self.node.last_write_ms

    def set_last_write_ms(self, time_ms: int) -> None:
        self._disk.require_alive()
        self.node.last_write_ms = time_ms

    def release_room(self) -> None:
        pass

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.note_open(self._path, -1)


class SimulatedDisk:
    """The file system of one machine, as the process that now runs on it sees it.

    before, after: called around every operation that changes something; they may raise StorageError (only before: the
                   operation fails and has done nothing) or kill the process and raise Crash.
    read_paths:    what was read as a whole file.
    A process that was killed can do nothing more here; `restarted` is the disk for the next one.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        process: Process | None = None,
        sync_latency_s: tuple[float, float] = (0.0001, 0.002),
    ) -> None:
        self.before: Callable[[Operation], None] | None = None
        self.after: Callable[[Operation], None] | None = None
        self.operation_count = 0
        self.read_paths: set[str] = set()
        self._chance = chance
        self._process = process
        self.sync_latency_s = sync_latency_s
        self._root = _DirectoryNode()
        self._locks: dict[str, Process | None] = {}
        self._open_files: Counter[str] = Counter()

    def restarted(self, process: Process | None, *, power_loss: bool) -> SimulatedDisk:
        """What the next process finds, after this one was stopped or killed, or after the machine lost its power."""
        disk = self.beside(process, self._chance)
        disk.sync_latency_s = self.sync_latency_s
        disk.operation_count = self.operation_count
        for path, owner in list(self._locks.items()):
            if owner is self._process:
                del self._locks[path]
        if power_loss:
            disk.lose_power()
        return disk

    def beside(self, process: Process | None, chance: random.Random) -> SimulatedDisk:
        """The same file system as another process sees it."""
        disk = SimulatedDisk(chance, process=process)
        disk._root, disk._locks = self._root, self._locks
        return disk

    def lose_power(self) -> None:
        """The machine loses its power; no process runs any more."""
        self._root.lose_power(self._chance)

    def size_bytes(self, path: str) -> int:
        node = self._find(path)
        return len(node.content) if isinstance(node, _FileNode) else 0

    def volume(self, path: str) -> Volume:
        return Volume(total_bytes=2**40, usable_bytes=2**40)

    # What tests look at

    def paths(self, under: str = "") -> list[str]:
        """All files, or those below a directory, sorted."""
        node = self._find(under)
        return sorted(self._files(node, under)) if isinstance(node, _DirectoryNode) else []

    def exists_now(self, path: str) -> bool:
        """Whether there is a file or directory, also when the process has ended."""
        return self._find(path) is not None

    def has_open_files(self, directory: str) -> bool:
        """Whether this process, which may have ended, has log files of a directory open."""
        if self._process is not None and self._process.is_dead:
            return False
        return any(path.startswith(f"{directory}/") and path.endswith(".log") for path in self._open_files)

    def durable_content(self, path: str) -> bytes:
        """What of a file has reached the device, if its directory has. Raises FileNotFoundError."""
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise FileNotFoundError(path)
        return bytes(node.durable)

    def content(self, path: str) -> bytes:
        """A file as it is now. Raises FileNotFoundError."""
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise FileNotFoundError(path)
        return bytes(node.content)

    def replace_content(self, path: str, content: bytes) -> None:
        """Damage a file, or put one there, behind the broker's back; durably, with all that its directory holds."""
        parent, name = self._parent(path)
        parent.synced(parent.change_count)
        node = _FileNode()
        node.content, node.durable = bytearray(content), content
        parent.entries[name] = parent.durable[name] = node

    def keep(self, path: str) -> None:
        """Make what a directory holds durable, as that of a machine that has long been running is."""
        node = self._find(path)
        assert isinstance(node, _DirectoryNode)
        node.synced(node.change_count)

    def put_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Put a directory there in place of another, by the paths of its files, behind the broker's back; durably."""
        parent, name = self._parent(path)
        parent.synced(parent.change_count)
        parent.entries[name] = parent.durable[name] = _DirectoryNode()
        for file_path, content in files.items():
            self.replace_content(file_path, content)

    def _files(self, directory: _DirectoryNode, path: str) -> Iterator[str]:
        for name, node in directory.entries.items():
            if isinstance(node, _FileNode):
                yield f"{path}/{name}"
            else:
                yield from self._files(node, f"{path}/{name}")

    # Operations

    def note_open(self, path: str, count: int) -> None:
        """A file of this process is opened or closed."""
        self._open_files[path] += count
        if not self._open_files[path]:
            del self._open_files[path]

    def operation(self, kind: str, path: str, size_bytes: int = 0, *, target: str = "") -> _Running:
        return _Running(self, kind, path, size_bytes, target)

    def require_alive(self) -> None:
        """Raise Crash if the process is dead: objects of a dead process do nothing."""
        if self._process is not None and self._process.is_dead:
            raise Crash

    def begin(self, kind: str, path: str, size_bytes: int, target: str = "") -> Operation:
        self.require_alive()
        self.operation_count += 1
        operation = Operation(self.operation_count, kind, path, size_bytes, target)
        if self.before is not None:
            self.before(operation)
        return operation

    def end(self, operation: Operation) -> None:
        if self.after is not None:
            self.after(operation)

    # Disk

    def open(self, path: str) -> LogFile:
        self.require_alive()
        node = self._find(path)
        if node is None:
            with self.operation("open", path):
                node = _FileNode()
                self._link(path, node)
        if not isinstance(node, _FileNode):
            raise _error(errno.EISDIR, "open", path)
        return SimulatedFile(self, path, node)

    def read_file(self, path: str) -> bytes | None:
        self.require_alive()
        self.read_paths.add(path)
        node = self._find(path)
        if isinstance(node, _DirectoryNode):
            raise _error(errno.EISDIR, "read", path)
        return None if node is None else bytes(node.content)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        with self.operation("write_file", path, len(content)):
            node = _FileNode()
            node.append(content)
            self._link(path, node)
            if durable:
                node.synced(node.change_count)
                parent, _ = self._parent(path)
                parent.synced(parent.change_count)

    def exists(self, path: str) -> bool:
        self.require_alive()
        return self._find(path) is not None

    def list(self, path: str) -> Sequence[str]:
        self.require_alive()
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, _DirectoryNode) else ()

    def make_directory(self, path: str) -> None:
        self.require_alive()
        node = self._find(path)
        if isinstance(node, _DirectoryNode):
            return
        with self.operation("make_directory", path):
            if node is not None:
                raise _error(errno.EEXIST, "make the directory", path)
            directory = self._root
            for name in _names(path):
                found = directory.entries.get(name)
                if found is None:
                    found = _DirectoryNode()
                    directory.change({name: found})
                if not isinstance(found, _DirectoryNode):
                    raise _error(errno.ENOTDIR, "make the directory", path)
                directory = found

    def rename(self, source: str, target: str) -> None:
        with self.operation("rename", source, target=target):
            node = self._find(source)
            if node is None:
                raise _error(errno.ENOENT, "rename", source)
            (old_parent, old_name), (new_parent, new_name) = self._parent(source), self._parent(target)
            if old_parent is new_parent:
                old_parent.change({old_name: None, new_name: node})
            else:
                old_parent.move_to(new_parent, old_name, new_name, node)

    def delete(self, path: str) -> None:
        self.require_alive()
        if self._find(path) is not None:
            with self.operation("delete", path):
                parent, name = self._parent(path)
                parent.change({name: None})

    def lock(self, path: str) -> bool:
        self.require_alive()
        if path in self._locks:
            owner = self._locks[path]
            if owner is None or not owner.is_dead:
                return False
        self._locks[path] = self._process
        return True

    def unlock(self, path: str) -> None:
        if self._locks.get(path) is self._process:
            self._locks.pop(path, None)

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        nodes: list[tuple[_Node, int]] = []
        paths = []
        for file in files:
            assert isinstance(file, SimulatedFile)
            nodes.append((file.node, file.node.change_count))
            paths.append(file.path)
        for directory in directories:
            node = self._find(directory)
            if isinstance(node, _DirectoryNode):
                nodes.append((node, node.change_count))
            paths.append(directory)
        # The device may have some of it before the sync is over; a power loss in between decides what.
        return self._sync(nodes, " ".join(paths))

    async def _sync(self, nodes: Sequence[tuple[_Node, int]], paths: str) -> None:
        operation = self.begin("sync", paths, len(nodes))
        await asyncio.sleep(self._chance.uniform(*self.sync_latency_s))
        self.require_alive()
        for node, change_count in nodes:
            node.synced(change_count)
        self.end(operation)

    async def write_back(self, path: str) -> None:
        """What reaches the device before a sync is left to chance as it is."""
        self.require_alive()

    # Paths

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            if not isinstance(node, _DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _parent(self, path: str) -> tuple[_DirectoryNode, str]:
        directory, _, name = path.rstrip("/").rpartition("/")
        node = self._find(directory)
        if not isinstance(node, _DirectoryNode):
            raise _error(errno.ENOENT, "find the directory of", path)
        return node, name

    def _link(self, path: str, node: _Node) -> None:
        parent, name = self._parent(path)
        parent.change({name: node})


class _Running:
    """An operation while it is done: `with disk.operation(...)`."""

    def __init__(self, disk: SimulatedDisk, kind: str, path: str, size_bytes: int, target: str) -> None:
        self._disk = disk
        self._arguments = kind, path, size_bytes, target
        self._operation: Operation | None = None

    def __enter__(self) -> None:
        self._operation = self._disk.begin(*self._arguments)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._operation is not None:
            self._disk.end(self._operation)


def die() -> None:
    """Kill the process whose code is running: for `SimulatedDisk.before` and `after`. Raises Crash."""
    process = current_process()
    assert process is not None
    process.kill()
    raise Crash


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _error(number: int, action: str, path: str) -> StorageError:
    return StorageError(number, f"cannot {action} {path}", path, paths=(path,))
