"""A proxy that cuts connections around a COMMIT, in front of a database that answers each statement."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from fencepost.soak.cutting_proxy import CuttingProxy, Place, commits

STARTUP = struct.pack(">II", 8, 196_608)
TLS = struct.pack(">II", 8, 80_877_103)
READY = b"Z\0\0\0\5I"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", 4 + len(body)) + body


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


COMPLETE = message(b"C", b"COMMIT\0")


class FakeDatabase:
    """Answers each query, and notes it."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ended = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, connection.makefile("rb") as stream:
                    stream.read(len(STARTUP))
                    with contextlib.suppress(OSError):
                        connection.sendall(READY)
                        while head := stream.read(5):
                            self.got.append(head + stream.read(struct.unpack_from(">I", head, 1)[0] - 4))
                            connection.sendall(COMPLETE + READY)
                self.ended.set()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def database() -> Iterator[FakeDatabase]:
    made = FakeDatabase()
    yield made
    made.close()


@pytest.fixture
def proxy(database: FakeDatabase) -> Iterator[tuple[CuttingProxy, int]]:
    with CuttingProxy({0: partial(asyncio.open_connection, "127.0.0.1", database.port)}) as made:
        yield made, made.ports[0]


@contextlib.contextmanager
def connected(port: int, startup: bytes = STARTUP) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(startup)
        yield client


def received(client: socket.socket, count: int) -> bytes:
    """As many bytes, or those that came before the connection has ended."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while len(found) < count and (more := client.recv(count - len(found))):
            found += more
    return found


def test_what_nobody_cuts_passes(proxy: tuple[CuttingProxy, int], database: FakeDatabase) -> None:
    with connected(proxy[1]) as client:
        client.sendall(query("COMMIT"))
        assert received(client, len(READY + COMPLETE + READY)) == READY + COMPLETE + READY
    assert database.got == [query("COMMIT")]


@pytest.mark.parametrize(
    ("place", "forwarded", "answered"),
    [(Place.BEFORE, 0, b""), (Place.AFTER, 1, b""), (Place.HALF, 1, COMPLETE[: len(COMPLETE) // 2])],
)
def test_a_connection_is_cut_where_it_was_told(
    proxy: tuple[CuttingProxy, int], database: FakeDatabase, place: Place, forwarded: int, answered: bytes
) -> None:
    cutting, port = proxy
    with connected(port) as client:
        client.sendall(query("SELECT 1"))
        assert received(client, len(READY + COMPLETE + READY))
        cutting.cut_next(place)
        client.sendall(query("COMMIT"))
        assert received(client, 1000) == answered
    assert database.ended.wait(60)
    assert database.got == [query("SELECT 1"), *[query("COMMIT")] * forwarded]
    assert cutting.cuts_count == 1


def test_what_was_armed_can_be_forgotten(proxy: tuple[CuttingProxy, int]) -> None:
    cutting, port = proxy
    cutting.cut_next(Place.BEFORE)
    cutting.forget()
    with connected(port) as client:
        client.sendall(query("COMMIT"))
        assert received(client, len(READY + COMPLETE + READY)) == READY + COMPLETE + READY


def test_encryption_is_refused(proxy: tuple[CuttingProxy, int]) -> None:
    with connected(proxy[1], TLS) as client:
        assert received(client, 1) == b"N"
        client.sendall(STARTUP)
        assert received(client, len(READY)) == READY


@pytest.mark.parametrize("startup", [struct.pack(">II", 2**31, 196_608), struct.pack(">II", 4, 196_608)])
def test_nonsense_ends_its_connection_alone(proxy: tuple[CuttingProxy, int], startup: bytes) -> None:
    with connected(proxy[1], startup) as client:
        assert received(client, 1) == b""
    with connected(proxy[1]) as client:
        assert received(client, len(READY)) == READY


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (query("COMMIT"), True),
        (query(" commit;"), True),
        (message(b"P", b"name\0COMMIT\0\0\0"), True),
        (query("SELECT 'COMMIT'"), False),
        (message(b"P", b"COMMIT\0SELECT 1\0\0\0"), False),
        (message(b"B", b"COMMIT\0"), False),
        (query("ROLLBACK"), False),
    ],
)
def test_a_commit_is_recognised_among_other_messages(sent: bytes, expected: bool) -> None:
    assert commits(sent[:1], sent) is expected
