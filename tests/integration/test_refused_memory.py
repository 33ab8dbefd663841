"""What a refused request held is freed with its refusal: no reference cycle keeps it until garbage is collected.

A broker collects garbage rarely, so a cycle that holds a large buffer is as good as a leak: anybody can send the same
request again and again.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import re
import struct
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import crc32c
import pytest

from fencepost.broker.config import Settings
from fencepost.broker.node import Node
from fencepost.broker.requests.api import APIS
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.declaration import ArrayOf, StructOf, WireType
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.primitives import BYTES
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until
from tests.support.hostile_clients import victims
from tests.support.hostile_requests import VICTIM_TOPIC, HostileRequests
from tests.support.wire import WireConnection, request_frame

LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Of a batch when it is decompressed: small, so that a bomb is made quickly."""
LARGE_TEXT: Final = "n" * 20_000
LARGE_BYTES: Final = b"b" * 300_000
ELEMENTS_COUNT: Final = 300
KEPT_BYTES: Final = 64 * 1024
"""Far less than any of the requests has."""
TIMES: Final = 2
SEED: Final = 28_111
PATIENCE_S: Final = 1.0
SETTINGS: Final[dict[str, Any]] = {
    "fencepost_batch_max_decompressed_bytes": LIMIT_BYTES,
    "fencepost_shutdown_drain_ms": 500,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
}


def batch(payload: bytes, codec: Codec) -> bytes:
    """A batch of one record, whatever is in it."""
    body = struct.pack(">hiqqqhii", codec, 0, 1, 1, -1, -1, -1, 1) + payload
    return struct.pack(">qiib", 0, len(body) + 9, 0, 2) + struct.pack(">I", crc32c.crc32c(body)) + body


def produce(records: bytes) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=VICTIM_TOPIC, partition_data=[PartitionProduceData(0, records)])],
    )


def bombs() -> Iterator[tuple[str, bytes]]:
    """Batches that hold too much, or that are cut short, so large that they are checked on a thread, or in a step."""
    for codec in Codec:
        if codec is not Codec.NONE:
            for name, content in (("huge", bytes(2 * LIMIT_BYTES)), ("large", bytes(LIMIT_BYTES - 100))):
                whole = compress(codec, content)
                yield f"{codec.name} {name}", batch(whole, codec)
                yield f"{codec.name} {name}, cut short", batch(whole[: len(whole) // 2], codec)
    yield "no codec", batch(bytes(LIMIT_BYTES // 10), Codec.NONE)


class LargeRequests(HostileRequests):
    """Requests whose every text, content and list is large."""

    def _value(self, wire_type: WireType, name: str, version: int) -> Any:
        if isinstance(wire_type, ArrayOf):
            is_nested = isinstance(wire_type.element, StructOf)
            return [self._value(wire_type.element, name, version) for _ in range(3 if is_nested else ELEMENTS_COUNT)]
        if wire_type is BYTES:
            return LARGE_BYTES
        return super()._value(wire_type, name, version)

    def _text(self, name: str) -> str:
        return LARGE_TEXT if self.chance.random() < 0.5 else super()._text(name)

    def _records(self) -> bytes:
        return batch(LARGE_BYTES, Codec.GZIP)


def buffers_of(garbage: list[Any]) -> dict[int, int]:
    """The sizes of all buffers that garbage refers to, by identity."""
    found: dict[int, int] = {}
    for one in garbage:
        for each in (one, *gc.get_referents(one)):
            if isinstance(each, memoryview):
                found[id(each.obj)] = len(each.obj)  # type: ignore[arg-type]
            elif isinstance(each, bytes | bytearray | mmap.mmap) or (isinstance(each, str) and len(each) > 1_000):
                found[id(each)] = len(each)
    return found


def kept_in_cycles(work: Callable[[], object]) -> tuple[int, list[str]]:
    """Run work; return the bytes that only garbage holds afterwards, and where the frames among it are."""
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        frames = [f"{one.f_code.co_qualname}:{one.f_lineno}" for one in gc.garbage if isinstance(one, types.FrameType)]
        return sum(buffers_of(gc.garbage).values()), frames
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


def send_again(host: str, port: int, frames: list[bytes], patience_s: float = PATIENCE_S) -> None:
    """Send each frame on a connection of its own, and wait for the answers; some wait for what never comes."""
    with ExitStack() as opened:
        connections = [opened.enter_context(WireConnection(host, port)) for _ in frames]
        for connection, frame in zip(connections, frames, strict=True):
            with suppress(ConnectionError):
                connection.send(frame)
        until_s = time.monotonic() + patience_s
        for connection in connections:
            connection.socket.settimeout(max(0.01, until_s - time.monotonic()))
            with suppress(ConnectionError, TimeoutError):
                connection.receive_frame()


async def kept_by_node(directory: Path, frames: dict[str, list[bytes]]) -> dict[str, tuple[int, list[str]]]:
    """For each group of frames of which a node in this process keeps much: how many bytes, and in which frames."""
    node = Node(Settings(log_dirs=str(directory), listeners=("PLAINTEXT://127.0.0.1:0",), **SETTINGS))
    await node.start()
    try:
        _, host, port = node.address
        await victims(host, port)
        found = {}
        for name, group in frames.items():
            await asyncio.to_thread(send_again, host, port, group)  # what is loaded with the first one is in memory now
            again = partial(send_again, host, port, group * TIMES)
            kept_bytes, where = await asyncio.to_thread(kept_in_cycles, again)
            if kept_bytes > KEPT_BYTES:
                found[name] = kept_bytes, where
        return found
    finally:
        await node.stop()


FEW: Final = ("GZIP huge", "SNAPPY huge, cut short", "LZ4 large", "ZSTD large, cut short", "no codec")
"""Each codec and each kind of batch once."""


@pytest.mark.parametrize("is_few", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_a_refused_batch_is_freed_with_its_refusal(tmp_path: Path, is_few: bool) -> None:
    made = {name: [request_frame(produce(records), 9)] for name, records in bombs()}
    frames = {name: made[name] for name in (FEW if is_few else made)}
    assert await kept_by_node(tmp_path / "data", frames) == {}


async def test_what_any_large_request_held_is_freed_with_its_answer(tmp_path: Path) -> None:
    requests = LargeRequests(SEED, [])
    versions = [(api, version) for api in APIS.values() for version in {api.minimum_version, api.maximum_version}]
    frames = [requests.request(api.request, version).content for api, version in versions]
    assert await kept_by_node(tmp_path / "data", {"all": frames}) == {}


def test_refused_bombs_leave_no_memory_mapped(tmp_path: Path) -> None:
    settings = {"fencepost.batch.max.decompressed.bytes": str(LIMIT_BYTES)}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:
        asyncio.run(victims(process.host, process.port))

        def mapped_count() -> int:
            maps = Path(f"/proc/{process.process_id}/maps").read_text()
            return len(re.findall("/dev/zero", maps))

        frames = [request_frame(produce(records), 9) for name, records in bombs() if "huge" in name]
        # All are answered, and a broker on a busy machine takes its time.
        send_again(process.host, process.port, frames, patience_s=60)
        before = mapped_count()
        send_again(process.host, process.port, frames * TIMES, patience_s=60)
        until(lambda: mapped_count() <= before)
