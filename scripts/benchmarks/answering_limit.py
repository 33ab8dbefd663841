"""The least that any asyncio server must do for requests that store something: read, write, sync if wanted, reply.

    .venv/bin/python -m scripts.benchmarks.answering_limit --listener 127.0.0.1:0 --data-dir DIRECTORY [--sync]

It checks nothing, keeps nothing in order and is no broker: it says yes, with replies made in advance. What comes in one
piece is written by one write, synced by one fdatasync in a thread, and answered by one write. So it shows what clients,
system and event loop take whatever a broker does. `scripts/benchmarks/byte_limit.py` is the same for bytes per second;
this one speaks enough of the protocol for librdkafka. It prints the address when it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from fencepost.broker.kernel.scheduler_slices import request_longest_slices
from fencepost.protocol.api_keys import ApiKey
from scripts.benchmarks.prepared_replies import API_KEY, LENGTH_BYTES, FetchReplies, PreparedReplies

FILES_COUNT = 50
"""Partitions of an internal topic."""
STORING = frozenset(
    {ApiKey.PRODUCE.value, ApiKey.ADD_PARTITIONS_TO_TXN.value, ApiKey.END_TXN.value, ApiKey.OFFSET_COMMIT.value}
)


class WaitingFetch(NamedTuple):
    """A Fetch that found nothing."""

    send: Callable[[bytes | bytearray], None]
    frame: bytes
    timeout: asyncio.TimerHandle


class Store:
    """What the connections have in common: files, replies, and the one batch that has not been fetched yet."""

    def __init__(self, directory: Path, *, is_synced: bool) -> None:
        self.is_synced = is_synced
        self.replies = PreparedReplies()
        self._fetch_replies = FetchReplies()
        self._unread: tuple[bytes, int] | None = None
        self._waiting: WaitingFetch | None = None
        self._connections_count = 0
        self._files = [
            os.open(directory / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            for number in range(FILES_COUNT)
        ]

    def file_of_next_connection(self) -> int:
        self._connections_count += 1
        return self._files[self._connections_count % FILES_COUNT]

    def produced(self, frame: bytes) -> None:
        """The batch of a Produce can be fetched."""
        batch = self.replies.batch(frame)
        offset = self.replies.answers.end_offset
        self.replies.answers.end_offset = offset + 1
        if self._waiting is None:
            self._unread = (batch, offset)
            return
        waiting, self._waiting = self._waiting, None
        waiting.timeout.cancel()
        waiting.send(self._fetch_replies.with_batch(waiting.frame, batch, offset))

    def fetch(self, frame: bytes, send: Callable[[bytes | bytearray], None]) -> None:
        """Answer with the unfetched batch, or as soon as there is one."""
        wait_s = self._fetch_replies.wait_s(frame)
        if self._unread is not None:
            batch, offset = self._unread
            self._unread = None
            send(self._fetch_replies.with_batch(frame, batch, offset))
            return

        if self._waiting is not None:  # of a client that is gone: one reads at a time
            self._waiting.timeout.cancel()

        def give_up() -> None:
            self._waiting = None
            send(self._fetch_replies.with_batch(frame, b"", 0))

        self._waiting = WaitingFetch(send, frame, asyncio.get_running_loop().call_later(wait_s, give_up))


class LeastConnection(asyncio.Protocol):
    """One connection; replies leave in the order of the requests, those to a Fetch when there is something."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file = store.file_of_next_connection()
        self._rest = b""
        self._written: list[tuple[list[bytearray], list[bytes]]] = []  # and not synced: replies, and to what
        self._is_syncing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        start = 0
        replies: list[bytearray] = []
        stored: list[bytes] = []
        while len(data) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(data[start : start + LENGTH_BYTES], "big")
            if end > len(data):
                break
            frame = data[start:end]
            start = end
            api_key = int.from_bytes(frame[API_KEY], "big")
            if api_key == ApiKey.FETCH:
                self._store.fetch(frame, self._transport.write)
                continue
            replies.append(self._store.replies.to(frame, api_key))
            if api_key in STORING:
                stored.append(frame)
        self._rest = data[start:]
        if stored:
            os.writev(self._file, stored)
        if not (stored and self._store.is_synced):
            self._reply(replies, stored)
            return
        self._written.append((replies, stored))
        if not self._is_syncing:
            self._sync()

    def _sync(self) -> None:
        """What is written meanwhile goes with the next sync."""
        written, self._written = self._written, []
        self._is_syncing = True

        def end(_: asyncio.Future[None]) -> None:
            self._is_syncing = False
            for replies, stored in written:
                self._reply(replies, stored)
            if self._written:
                self._sync()

        asyncio.get_running_loop().run_in_executor(None, os.fdatasync, self._file).add_done_callback(end)

    def _reply(self, replies: list[bytearray], stored: list[bytes]) -> None:
        for frame in stored:
            if int.from_bytes(frame[API_KEY], "big") == ApiKey.PRODUCE:
                self._store.produced(frame)
        if replies:
            self._transport.write(b"".join(replies))


async def serve(host: str, port: int, directory: Path, *, is_synced: bool) -> None:
    store = Store(directory, is_synced=is_synced)
    server = await asyncio.get_running_loop().create_server(lambda: LeastConnection(store), host, port)
    store.replies.answers.address = server.sockets[0].getsockname()
    print("listening on {}:{}".format(*store.replies.answers.address), flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="answering_limit.py", description="The least that an asyncio server must do.")
    parser.add_argument("--listener", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIRECTORY", help="is there, and empty")
    parser.add_argument("--sync", action="store_true", help="reply when what was written is on the disk")
    options = parser.parse_args()
    host, _, port = options.listener.rpartition(":")
    request_longest_slices()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(host, int(port), options.data_dir, is_synced=options.sync))


if __name__ == "__main__":
    main()
