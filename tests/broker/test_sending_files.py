"""Replies of which parts lie in files: over real sockets, from real files, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.connection import Connection
from broker.disk import StorageError
from broker.file_slice import FileSlice
from broker.local_disk import LocalDisk
from broker.long_polls import LongPolls
from broker.receive_buffer import BufferPool
from protocol.primitives import Buffer
from tests.broker.test_connection import Limits

CONTENT = random.Random(7).randbytes(9_000_000)
REQUEST = (8).to_bytes(4, "big") + b"request1"
PATIENCE_S = 30.0

Chunks = Sequence[Buffer | FileSlice]
Loop = Callable[[], asyncio.AbstractEventLoop]


class Server:
    """Answers each request of one client with the next of `replies`; what a test looks at is public."""

    def __init__(self, replies: Sequence[Chunks]) -> None:
        self.long_polls = LongPolls()
        self.refusals: list[str] = []
        self.closed = asyncio.Event()
        self.connections: list[Connection] = []
        self._replies = iter(replies)

    def dispatch(self, frame: memoryview, connection: Connection) -> Chunks:
        return next(self._replies)

    def connection_opened(self, connection: Connection) -> bool:
        self.connections.append(connection)
        return True

    def connection_closed(self, connection: Connection) -> None:
        self.closed.set()

    def connection_refused(self, connection: Connection, reason: str) -> None:
        self.refusals.append(reason)

    async def listen(self) -> tuple[asyncio.Server, tuple[str, int]]:
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: Connection(
                1,
                dispatcher=self,  # type: ignore[arg-type]
                owner=self,
                limits=Limits(fencepost_connection_write_buffer_bytes=1 << 20),
                pool=BufferPool(),
                loop=loop,
            ),
            "127.0.0.1",
            0,
        )
        return listening, listening.sockets[0].getsockname()


class Files:
    """A file with CONTENT, opened anew for each slice, and how much of it was copied into memory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied_bytes = 0
        self.path = str(directory / "0.log")
        self._disk = LocalDisk()
        file = self._disk.open(self.path)
        file.append(CONTENT)
        pread = os.pread

        def counted(descriptor: int, length_bytes: int, position: int) -> bytes:
            found = pread(descriptor, length_bytes, position)
            self.copied_bytes += len(found)
            return found

        monkeypatch.setattr(os, "pread", counted)

    def slice(self, position: int, length_bytes: int, *, is_closed: bool = False) -> FileSlice:
        file = self._disk.open(self.path)
        if is_closed:
            file.close()
        return FileSlice(file, position, length_bytes)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path, monkeypatch)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def on_the_loop(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(test, PATIENCE_S))

    return on_the_loop


Run = Callable[[Coroutine[Any, Any, None]], None]


async def ask(address: tuple[str, int], count: int, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    client = socket.socket()
    if receive_buffer_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, REQUEST * count)
    return client


async def read_all(client: socket.socket, length_bytes: int) -> bytes:
    """So many bytes, or fewer where the broker closes before."""
    received = bytearray()
    while len(received) < length_bytes:
        part = await asyncio.get_running_loop().sock_recv(client, length_bytes - len(received))
        if not part:
            break
        received += part
    return bytes(received)


@pytest.mark.parametrize("receive_buffer_bytes", [None, 4_096])
def test_a_reply_arrives_as_it_is_in_the_file_and_little_of_it_is_copied(
    files: Files, run: Run, receive_buffer_bytes: int | None
) -> None:
    async def test() -> None:
        reply: Chunks = [b"head", files.slice(5, 8_000_000), b"between", files.slice(1, 100_000), b"tail"]
        server = Server([reply, reply, [b"small"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 3, receive_buffer_bytes=receive_buffer_bytes)
            expected = b"".join((b"head", CONTENT[5:8_000_005], b"between", CONTENT[1:100_001], b"tail")) * 2 + b"small"
            assert await read_all(client, len(expected)) == expected
            assert files.copied_bytes == 2 * 100_000  # of sixteen million
            client.close()
            await server.closed.wait()
        assert server.refusals == []

    run(test())


def test_small_replies_before_and_behind_keep_their_place(files: Files, run: Run) -> None:
    async def test() -> None:
        large: Chunks = [b"head", files.slice(0, 3_000_000)]
        server = Server([[b"1" * 500_000], large, [b"2"], large, [b"3" * 500_000]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 5, receive_buffer_bytes=8_192)
            whole = b"head" + CONTENT[:3_000_000]
            expected = b"1" * 500_000 + whole + b"2" + whole + b"3" * 500_000
            assert await read_all(client, len(expected)) == expected
            client.close()
            await server.closed.wait()

    run(test())


def test_what_the_socket_does_not_take_at_once_follows(run: Run) -> None:
    async def test() -> None:
        replies = [
            random.Random(number).randbytes(length) for number, length in enumerate((12_000_000, 10, 3_000_000, 7))
        ]
        server = Server([[reply] for reply in replies])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1, receive_buffer_bytes=8_192)
            await asyncio.get_running_loop().sock_sendall(client, REQUEST)  # finds the first reply on its way
            for reply in replies[:2]:
                assert await read_all(client, len(reply)) == reply
            for reply in replies[2:]:
                await asyncio.get_running_loop().sock_sendall(client, REQUEST)
                assert await read_all(client, len(reply)) == reply
            client.close()
            await server.closed.wait()
        assert server.refusals == []

    run(test())


def test_a_reply_to_a_client_that_has_gone_ends_the_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        def gone(*_: object) -> int:
            raise ConnectionResetError

        server = Server([[b"reply"], [b"reply"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1)
            assert await read_all(client, 5) == b"reply"
            with monkeypatch.context() as broken:
                broken.setattr(os, "write", gone)
                await asyncio.get_running_loop().sock_sendall(client, REQUEST)
                assert await read_all(client, 5) == b"reply"  # the transport knows better
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()  # with a reset
            await server.closed.wait()

    run(test())


def test_a_client_that_leaves_in_the_middle_is_no_error(files: Files, run: Run) -> None:
    async def test() -> None:
        server = Server([[b"head", files.slice(0, 9_000_000), b"tail"]] * 2)
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 2, receive_buffer_bytes=4_096)
            assert await read_all(client, 100_000) == b"head" + CONTENT[:99_996]
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.close()  # with a reset
            await server.closed.wait()
        assert server.refusals == []

    run(test())


def test_a_file_that_was_deleted_meanwhile_cuts_the_connection_off(files: Files, run: Run) -> None:
    async def test() -> None:
        told: list[StorageError] = []
        deleted = files.slice(0, 1_000_000, is_closed=True)
        deleted.failed = told.append
        server = Server([[b"head", files.slice(0, 1_000_000), deleted]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1)
            try:
                received = await read_all(client, 2_000_004)
            except ConnectionResetError:
                received = b""
            assert (b"head" + CONTENT[:1_000_000]).startswith(received)
            await server.closed.wait()
            client.close()
        (refusal,) = server.refusals
        assert "it is closed" in refusal
        assert len(told) == 1

    run(test())


def test_a_connection_that_is_drained_sends_what_it_has_begun(files: Files, run: Run) -> None:
    async def test() -> None:
        server = Server([[b"head", files.slice(0, 9_000_000), b"tail"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1, receive_buffer_bytes=4_096)
            first = await read_all(client, 10_000)
            server.connections[0].drain()
            rest = await read_all(client, 20_000_000)  # to the end
            assert first + rest == b"head" + CONTENT + b"tail"
            client.close()

    run(test())


def test_pages_that_the_disk_loses_while_a_client_reads_slowly_end_its_connection_only(files: Files, run: Run) -> None:
    async def test() -> None:
        server = Server([[b"head", files.slice(0, 9_000_000), b"tail"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1, receive_buffer_bytes=4_096)
            assert await read_all(client, 10_000) == b"head" + CONTENT[:9_996]
            os.truncate(files.path, 0)
            with contextlib.suppress(ConnectionResetError):
                assert len(await read_all(client, 9_000_008)) < 8_990_008
            await server.closed.wait()
            client.close()

    run(test())
