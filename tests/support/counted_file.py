"""A file in memory that notes what is read of it, and can fail."""

from __future__ import annotations

import os

from fencepost.broker.storage.disk import StorageError


class CountedFile:
    """`reads` are position and length of each read; from `fails_from` on the file cannot be read."""

    def __init__(self, content: bytes, *, fails_from: int | None = None) -> None:
        self.content = content
        self.fails_from = fails_from
        self.reads: list[tuple[int, int]] = []

    @property
    def path(self) -> str:
        return "/data/orders-0/00000000000000000000.log"

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        self.content = b"".join((self.content, *buffers))

    def read(self, position: int, length_bytes: int) -> memoryview:
        self.reads.append((position, length_bytes))
        if self.fails_from is not None and position + length_bytes > self.fails_from:
            raise StorageError(5, "cannot read the file: Input/output error", self.path)
        return memoryview(self.content)[position : position + length_bytes]

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        return self.read(position, length_bytes)

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        return os.write(descriptor, self.read(position, min(length_bytes, len(self.content) - position)))

    def truncate(self, size_bytes: int) -> None:
        self.content = self.content[:size_bytes]

    def last_write_ms(self) -> int:
        return 0

    def set_last_write_ms(self, time_ms: int) -> None:
        pass

    def release_room(self) -> None:
        pass

    def close(self) -> None:
        pass
