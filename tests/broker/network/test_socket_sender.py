"""Replies of which parts lie in files: over real sockets, from real files, on both event loops; sent by the system from
the page cache, as to clients on this machine, and through the transport, as to all others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.receive_buffer import BufferPool
from fencepost.broker.network.socket_sender import SEND_BUFFER_BYTES, SendfileSockets
from fencepost.broker.requests.long_polls import LongPolls
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.framing import EqualLengthFrames
from fencepost.protocol.primitives import Buffer
from tests.broker.network.test_connection import Limits

CONTENT = random.Random(7).randbytes(9_000_000)
REQUEST = (8).to_bytes(4, "big") + b"request1"
PATIENCE_S = 30.0

Chunks = Sequence[Buffer | FileSlice]
Loop = Callable[[], asyncio.AbstractEventLoop]


class Server:
    """Answers each request of one client with the next of `replies`; what a test looks at is public."""

    def __init__(self, replies: Sequence[Chunks], *, send_buffer_bytes: int = -1, stall_ms: int = 60_000) -> None:
        self.long_polls = LongPolls()
        self.descriptors = Descriptors(1_024)
        self.sendfile_sockets = SendfileSockets(self.descriptors, send_buffer_bytes)
        self.refusals: list[str] = []
        self.closed = asyncio.Event()
        self.connections: list[Connection] = []
        self._replies = iter(replies)
        self._limits = Limits(
            fencepost_connection_write_buffer_bytes=1 << 20, fencepost_connection_write_stall_ms=stall_ms
        )

    def dispatch(self, frame: memoryview, connection: Connection) -> Chunks:
        return next(self._replies)

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> None:
        """Each request has its own reply."""

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
                dispatcher=self,
                owner=self,
                limits=self._limits,
                pool=BufferPool(),
                sendfile_sockets=self.sendfile_sockets,
                loop=loop,
            ),
            "127.0.0.1",
            0,
        )
        return listening, listening.sockets[0].getsockname()


class Files:
    """A file with CONTENT, opened anew for each slice, and how much of it was copied into memory, or sent without."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied_bytes = self.sent_bytes = 0
        self.path = str(directory / "0.log")
        self._disk = LocalDisk()
        file = self._disk.open(self.path)
        file.append(CONTENT)
        pread = os.pread

        def counted(descriptor: int, length_bytes: int, position: int) -> bytes:
            found = pread(descriptor, length_bytes, position)
            self.copied_bytes += len(found)
            return found

        sendfile = os.sendfile

        def counted_sending(client: int, descriptor: int, position: int, length_bytes: int) -> int:
            sent_bytes = sendfile(client, descriptor, position, length_bytes)
            self.sent_bytes += sent_bytes
            return sent_bytes

        monkeypatch.setattr(os, "pread", counted)
        monkeypatch.setattr(os, "sendfile", counted_sending)

    def slice(self, position: int, length_bytes: int, *, is_closed: bool = False) -> FileSlice:
        file = self._disk.open(self.path)
        if is_closed:
            file.close()
        return FileSlice(file, position, length_bytes)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path, monkeypatch)


@pytest.fixture(params=[True, False], ids=["direct", "through the transport"], autouse=True)
def is_direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr("fencepost.broker.network.socket_sender.MIN_FILE_BYTES", 1 << 40)
    return bool(request.param)


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
    """`length_bytes` bytes, or fewer if the broker closes before."""
    received = bytearray()
    while len(received) < length_bytes:
        part = await asyncio.get_running_loop().sock_recv(client, length_bytes - len(received))
        if not part:
            break
        received += part
    return bytes(received)


@pytest.mark.parametrize("receive_buffer_bytes", [None, 4_096])
def test_a_reply_arrives_as_it_is_in_the_file_and_little_of_it_is_copied(
    files: Files, run: Run, is_direct: bool, receive_buffer_bytes: int | None
) -> None:
    async def test() -> None:
        reply: Chunks = [b"head", files.slice(5, 8_000_000), b"between", files.slice(1, 100_000), b"tail"]
        server = Server([reply, reply, [b"small"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 3, receive_buffer_bytes=receive_buffer_bytes)
            expected = b"".join((b"head", CONTENT[5:8_000_005], b"between", CONTENT[1:100_001], b"tail")) * 2 + b"small"
            assert await read_all(client, len(expected)) == expected
            if is_direct:
                assert (files.sent_bytes, files.copied_bytes) == (2 * 8_100_000, 0)
            else:
                assert (files.sent_bytes, files.copied_bytes) == (0, 2 * 100_000)
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
        reported: list[StorageError] = []
        deleted = files.slice(0, 1_000_000, is_closed=True)
        deleted.failed = reported.append
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
        assert len(reported) == 1

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


# What the system sends from the page cache

directly = pytest.mark.parametrize("is_direct", [True], ids=["direct"], indirect=True)


def descriptors_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@directly
def test_replies_have_no_descriptor_of_their_own_where_not_all_connections_could_have_one(
    files: Files, run: Run
) -> None:
    async def test() -> None:
        reply: Chunks = [b"head", files.slice(0, 2_000_000), b"tail"]
        expected = b"head" + CONTENT[:2_000_000] + b"tail"
        server = Server([reply] * 3)
        listening, address = await server.listen()
        async with listening:
            most = server.descriptors.connection_limit
            for connection_count, sent_bytes in ((1, 2_000_000), (most, 2_000_000), (1, 4_000_000)):
                server.descriptors.connected(connection_count)
                client = await ask(address, 1)
                assert await read_all(client, len(expected)) == expected
                client.close()
                assert files.sent_bytes == sent_bytes

    run(test())


@directly
@pytest.mark.parametrize("ending", ["sent", "gone", "aborted"])
def test_the_descriptor_of_a_reply_is_given_back(files: Files, run: Run, ending: str) -> None:
    clients_count = 30

    async def test() -> None:
        reply: Chunks = [b"head", files.slice(0, 2_000_000)]
        server = Server([reply] * clients_count)
        listening, address = await server.listen()
        async with listening:
            before = 0
            for _ in range(clients_count):
                server.closed.clear()
                client = await ask(address, 1, receive_buffer_bytes=4_096)
                await read_all(client, 1_000)
                if ending == "sent":
                    await read_all(client, 1_999_004)
                elif ending == "aborted":
                    server.connections[-1].abort()
                client.close()
                await server.closed.wait()
                before = before or descriptors_count()
            assert descriptors_count() <= before
            assert files.sent_bytes > clients_count * 1_000

    run(test())


@directly
@pytest.mark.parametrize("taken_bytes", [0, 300_000])
def test_what_the_system_cannot_send_by_itself_goes_through_the_transport(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch, taken_bytes: int
) -> None:
    async def test() -> None:
        left_bytes = taken_bytes
        sendfile = os.sendfile

        def refuses(client: int, descriptor: int, position: int, length_bytes: int) -> int:
            nonlocal left_bytes
            if not left_bytes:
                raise OSError(errno.EINVAL, "Invalid argument")
            sent_bytes = sendfile(client, descriptor, position, min(length_bytes, left_bytes))
            left_bytes -= sent_bytes
            return sent_bytes

        monkeypatch.setattr(os, "sendfile", refuses)
        reply: Chunks = [b"head", files.slice(5, 8_000_000), b"tail"]
        server = Server([reply, reply])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 2, receive_buffer_bytes=4_096)
            expected = (b"head" + CONTENT[5:8_000_005] + b"tail") * 2
            assert await read_all(client, len(expected)) == expected
            client.close()
            await server.closed.wait()
        assert server.refusals == []

    run(test())


@directly
def test_replies_go_through_the_transport_where_there_is_no_descriptor_left(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        def refuses(_descriptor: int) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(os, "dup", refuses)
        server = Server([[b"head", files.slice(5, 8_000_000), b"tail"]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1)
            assert await read_all(client, 8_000_008) == b"head" + CONTENT[5:8_000_005] + b"tail"
            client.close()
            await server.closed.wait()
        assert (files.sent_bytes, server.refusals) == (0, [])

    run(test())


@directly
@pytest.mark.parametrize(("configured_bytes", "expected_bytes"), [(-1, SEND_BUFFER_BYTES), (50_000, 50_000)])
def test_the_send_buffer_is_as_configured_or_what_is_fast(
    files: Files, run: Run, configured_bytes: int, expected_bytes: int
) -> None:
    allowed_bytes = int(Path("/proc/sys/net/core/wmem_max").read_text())

    async def test() -> None:
        server = Server([[b"head", files.slice(0, 8_000_000)]], send_buffer_bytes=configured_bytes)
        listening, address = await server.listen()
        async with listening:
            if configured_bytes >= 0:
                for listener in listening.sockets:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, configured_bytes)
            client = await ask(address, 1)
            assert await read_all(client, 8_000_004) == b"head" + CONTENT[:8_000_000]
            (connection,) = server.connections
            transport = connection._transport
            assert transport is not None
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as accepted:
                reserved_bytes = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert reserved_bytes == 2 * min(expected_bytes, allowed_bytes)  # as Linux counts
            client.close()
            await server.closed.wait()

    run(test())


def test_a_client_that_does_not_read_a_reply_is_cut_off(files: Files, run: Run) -> None:
    async def test() -> None:
        server = Server([[b"head", files.slice(0, 9_000_000)]], stall_ms=50)
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1, receive_buffer_bytes=4_096)
            await server.closed.wait()
            client.close()
        assert server.refusals == ["the client does not read its replies"]

    run(test())


@directly
def test_a_client_that_reads_slowly_is_not(files: Files, run: Run) -> None:
    async def test() -> None:
        server = Server([[b"head", files.slice(0, 9_000_000)]])
        listening, address = await server.listen()
        async with listening:
            client = await ask(address, 1, receive_buffer_bytes=4_096)
            received = b""
            for _ in range(5):
                received += await read_all(client, 1_500_000)  # more than fits on the way
                outbox = server.connections[0]._outbox
                outbox._check_stall(outbox._unsent_bytes() + 1)
            received += await read_all(client, 1_500_004)
            assert received == b"head" + CONTENT
            client.close()
            await server.closed.wait()
        assert server.refusals == []

    run(test())
