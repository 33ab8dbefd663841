"""The least that any asyncio server must do for a produced batch: read the frame, checksum it, write it, reply.

    .venv/bin/python -m scripts.benchmarks.byte_limit --listener 127.0.0.1:0 --file /tmp/limit.log

No protocol, no state, no order, no recovery: it takes every frame for a Produce request with one batch. What a broker
costs beyond this is its own work; `scripts/bench.py --only produce-against-limit` compares the two. It prints the
address when it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
from pathlib import Path
from typing import cast

import uvloop
from crc32c import crc32c

from fencepost.broker.kernel.scheduler_slices import request_longest_slices

BUFFER_BYTES = 4 * 1024 * 1024
LEAST_ROOM_BYTES = 256 * 1024
"""As much as the event loop reads at a time."""
LENGTH_BYTES = 4
CORRELATION_ID_POSITION = 8  # in the frame, its length included
CHECKED_FROM = 85
"""About where the checksummed part of a batch begins, behind the headers of request, topic, partition and batch."""
REPLY = struct.Struct(">ii")


class LeastServer(asyncio.BufferedProtocol):
    """One connection. A reply is its length and the correlation id."""

    def __init__(self, file_descriptor: int) -> None:
        self._file_descriptor = file_descriptor
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0  # what has arrived and is not written

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        start, end, buffer = self._start, self._end, self._buffer
        batches, replies = [], []
        while end - start >= LENGTH_BYTES:
            following = start + LENGTH_BYTES + int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
            if following > end:
                break
            batch = buffer[start + CHECKED_FROM : following]
            crc32c(batch)
            batches.append(batch)
            position = start + CORRELATION_ID_POSITION
            replies.append(REPLY.pack(4, int.from_bytes(buffer[position : position + 4], "big")))
            start = following
        if batches:
            os.writev(self._file_descriptor, batches)
            self._transport.writelines(replies)
        if start == end:
            start = self._end = 0
        elif BUFFER_BYTES - end < LEAST_ROOM_BYTES:
            buffer[: end - start] = bytes(buffer[start:end])  # what has arrived of the next frame
            start, self._end = 0, end - start
        self._start = start


async def serve(host: str, port: int, path: Path) -> None:
    file_descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    server = await asyncio.get_running_loop().create_server(lambda: LeastServer(file_descriptor), host, port)
    print("listening on {}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="byte_limit.py", description="The least that an asyncio server must do.")
    parser.add_argument("--listener", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--file", type=Path, required=True, metavar="FILE", help="where the batches are written")
    options = parser.parse_args()
    host, _, port = options.listener.rpartition(":")
    request_longest_slices()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(host, int(port), options.file))


if __name__ == "__main__":
    main()
