"""A modelled object store, for tests that need to know what goes wrong and when.

Its fault model:
- A put is atomic, and what it has stored is never lost, changed or hidden: reads and listings see it at once.
- A put may fail with nothing stored, with its object stored and only the reply lost, or with its object stored
  after the failure was reported (it was slow on its way).
- Gets, listings and deletes may fail; a delete that fails may have removed some, and is not carried out later.
- Every request may be slow, and overtake others.
- While `is_refusing`, every request is refused as by a server that answers; while `is_away`, as by one that does not.
  So is a request for an object whose name is in `away`.
An object that is put twice under one name is an error of the caller, as is a name that no object of a cluster has.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreTroubleError,
    ObjectTooShortError,
    StoredObject,
)

LOST_REPLY, NOTHING_DONE, DONE_LATER = "lost reply", "nothing done", "done later"


class ModelledObjects:
    """objects:        what is stored, by name.
    trouble:        how many of all requests fail, from 0 to 1.
    slowest_s:      requests take from 0 to this long.
    next_put_fails: how the next put fails, after `puts_until_failure` others; None after it.
    undeletable:    names of objects that it refuses to remove. deletes: how many were asked for, until each refusal.
    puts_count:     of those that were asked for.
    read_whole:     names of objects that were asked for as a whole; read_ranges: with the position, of those in part.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble = 0.0
        self.slowest_s = 0.0
        self.is_refusing = False
        self.is_away = False
        self.away: set[str] = set()
        self.next_put_fails: str | None = None
        self.puts_until_failure = 0
        self.puts_count = 0
        self.undeletable: set[str] = set()
        self.deletes = 0
        self.read_whole: list[str] = []
        self.read_ranges: list[tuple[str, int]] = []
        self._chance = random.Random(0) if chance is None else chance
        self._late: set[asyncio.Task[None]] = set()

    async def put(self, name: str, content: bytes | bytearray | memoryview) -> None:
        self.puts_count += 1
        content = bytes(content)
        failure = None
        if self.puts_until_failure:
            self.puts_until_failure -= 1
        else:
            failure, self.next_put_fails = self.next_put_fails, None
        await self._travel(name)
        if failure is None and self._chance.random() < self.trouble:
            failure = self._chance.choice((LOST_REPLY, NOTHING_DONE, DONE_LATER))
        if failure == DONE_LATER:
            late = asyncio.ensure_future(self._arrive_later(name, content))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
        elif failure != NOTHING_DONE:
            self._store(name, content)
        if failure is not None:
            raise ObjectStoreTroubleError(f"cannot put {name}: {failure}")

    async def _arrive_later(self, name: str, content: bytes) -> None:
        await asyncio.sleep(self.slowest_s + 0.01)
        self._store(name, content)

    def _store(self, name: str, content: bytes) -> None:
        assert name not in self.objects, f"{name} was put a second time"
        assert name, "an object without a name"
        assert not name.startswith("/"), name
        assert "//" not in name, name
        self.objects[name] = content

    async def put_file(self, name: str, path: str) -> None:
        await self.put(name, _content(path))

    async def get(self, name: str) -> bytes:
        self.read_whole.append(name)
        return await self._get(name)

    async def _get(self, name: str) -> bytes:
        await self._travel(name)
        self._fail_perhaps("get", name)
        if name not in self.objects:
            raise ObjectMissingError(f"there is no object {name}")
        return self.objects[name]

    async def get_range(self, name: str, position: int, length_bytes: int) -> bytes:
        self.read_ranges.append((name, position))
        content = (await self._get(name))[position : position + length_bytes]
        if len(content) != length_bytes:
            raise ObjectTooShortError(f"{name} has {len(content)} of {length_bytes} bytes")
        return content

    async def get_file(self, name: str, path: str) -> int:
        content = await self.get(name)
        ends_early = self._chance.random() < self.trouble
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, content[: len(content) // 2] if ends_early else content)
        os.close(descriptor)
        if ends_early:
            raise ObjectStoreTroubleError(f"{name} ended too early")
        return len(content)

    async def list(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        names = sorted(name for name in self.objects if name.startswith(prefix))
        for start in range(0, len(names), 3):
            await self._travel(prefix)
            self._fail_perhaps("list", prefix)
            yield [
                StoredObject(name, len(self.objects[name])) for name in names[start : start + 3] if name in self.objects
            ]

    async def delete(self, names: Sequence[str]) -> None:
        for name in names:
            await self._travel(name)
            self._fail_perhaps("delete", name)
            self.deletes += 1
            if name in self.undeletable:
                raise ObjectStoreRefusedError(f"AccessDenied: {name}")
            self.objects.pop(name, None)

    async def _travel(self, name: str) -> None:
        await asyncio.sleep(self._chance.random() * self.slowest_s)
        if self.is_refusing:
            raise ObjectStoreRefusedError(f"AccessDenied: {name}")
        if self.is_away or name in self.away:
            raise ObjectStoreTroubleError(f"{name}: no answer")

    def _fail_perhaps(self, action: str, name: str) -> None:
        if self._chance.random() < self.trouble:
            raise ObjectStoreTroubleError(f"cannot {action} {name}")


def _content(path: str) -> bytes:
    return Path(path).read_bytes()
