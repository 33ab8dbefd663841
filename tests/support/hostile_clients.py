"""Clients that behave badly on real sockets, and a witness that works beside them and must notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

from fencepost.broker.handlers import APIS
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches
from fencepost.protocol.schema import decode
from tests.support.allowed_replies import allowed_errors, error_codes
from tests.support.hostile_requests import VICTIM_TOPIC, HostileRequests, RequestFrame

REPLY_S = 0.03
"""How long an attacker waits: a request that may rightly wait is not waited for."""
_witnesses = itertools.count(1)
ANSWERS_TO_NONSENSE = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND})
"""What clients that mean something do not get: the latter for a group of a protocol that the API does not know."""
NONSENSE_OF_AN_API = {
    ApiKey.CREATE_PARTITIONS: frozenset({ErrorCode.POLICY_VIOLATION}),  # more partitions than the broker hosts
    ApiKey.CREATE_TOPICS: frozenset({ErrorCode.POLICY_VIOLATION}),  # the same
    ApiKey.INCREMENTAL_ALTER_CONFIGS: frozenset({ErrorCode.UNKNOWN_SERVER_ERROR}),  # no such operation, as in Kafka
}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class HostileConnection:
    """A connection that is opened anew whenever the broker has closed it or keeps a request waiting."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        return self._streams

    async def send(self, frame: RequestFrame) -> list[str]:
        """Send a frame; the fault in the reply, if one is found. Raises AssertionError."""
        reader, writer = await self._open()
        try:
            writer.write(frame.content)
            async with asyncio.timeout(REPLY_S):
                (length,) = struct.unpack(">i", await reader.readexactly(4))
            reply = await asyncio.wait_for(reader.readexactly(length), 10)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            self.close()
            return []
        if frame.is_whole and frame.expects_reply:
            return strange_errors(frame, reply)
        self.close()
        return []

    async def send_bytes(self, content: bytes) -> None:
        """Send what deserves no reply, and leave when nothing comes."""
        reader, writer = await self._open()
        with contextlib.suppress(TimeoutError, ConnectionError):
            writer.write(content)
            async with asyncio.timeout(REPLY_S):
                await reader.read(4)
        self.close()

    async def leave_in_the_middle(self, content: bytes, *, abruptly: bool) -> None:
        """Send a part of a frame and go; or half of the way, by closing only the own direction."""
        _, writer = await self._open()
        with contextlib.suppress(ConnectionError):
            writer.write(content)
            await asyncio.sleep(0)
            if abruptly:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            else:
                writer.write_eof()
                await asyncio.sleep(0)
        self.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def strange_errors(frame: RequestFrame, reply: bytes) -> list[str]:
    """The errors in a reply that its API does not answer, in words. Raises AssertionError when it is none to this
    request, DecodeError when it cannot be read."""
    api = ApiKey(frame.api_key)
    correlation_id, position = read_response_header(reply, response_header_version(frame.api_key, frame.version))
    assert correlation_id == frame.correlation_id
    response = decode(RESPONSES[frame.api_key], reply, frame.version, position)
    allowed = allowed_errors(api, frame.version) | ANSWERS_TO_NONSENSE | NONSENSE_OF_AN_API.get(api, frozenset())
    strange = set(error_codes(response)) - allowed
    return [f"{api.name} v{frame.version} answered {error.name} to {frame.content.hex()}" for error in strange]


async def attack(host: str, port: int, requests: HostileRequests, *, rounds: int, connections: int = 8) -> int:
    """Everything that hostile clients do, `rounds` times for each version of each API. Returns how many frames went
    out. Raises AssertionError for a reply that makes no sense."""
    plan = [
        (make, api.request, version)
        for api in APIS.values()
        for version in range(api.minimum_version, api.maximum_version + 1)
        for make in (requests.request, requests.damaged)
    ] * rounds
    requests.chance.shuffle(plan)
    nonsense = requests.nonsense()
    strange: list[str] = []

    async def assail(first: int) -> None:
        connection = HostileConnection(host, port)
        for number, (make, request_type, version) in enumerate(plan[first::connections]):
            frame = make(request_type, version)
            strange.extend(await connection.send(frame))
            if number % 25 == 0:
                await connection.send_bytes(next(nonsense))
            if number % 25 == 12:
                cut = frame.content[: requests.chance.randrange(len(frame.content))]
                await connection.leave_in_the_middle(cut, abruptly=number % 2 == 0)
        connection.close()

    await asyncio.gather(*map(assail, range(connections)))
    assert not strange, "\n".join(strange)
    return len(plan)


def now_ms() -> int:
    return int(time.time() * 1_000)


class Caller:
    """One plain connection that calls and waits for the reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, host: str, port: int) -> Caller:
        return cls(*await asyncio.open_connection(host, port))

    async def call(self, request: Any, version: int) -> Any:
        """Raises ConnectionError, asyncio.IncompleteReadError."""
        self._correlation_id += 1
        self._writer.write(request_frame(self._correlation_id, "witness", request, version))
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        reply = await self._reader.readexactly(length)
        _, position = read_response_header(reply, response_header_version(request.api_key, version))
        return decode(RESPONSES[request.api_key], reply, version, position)

    def close(self) -> None:
        self._writer.close()


class Witness:
    """A client that produces, reads back, commits transactions and offsets, and keeps its place in a group.

    rounds:    how often it has done all of that.
    slowest_s: the longest that a reply took.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._name = f"witness-{next(_witnesses)}"  # its topic, its group and its transactional id
        self._offset = 0
        self._member_id = ""
        self._generation = 0
        self._producer = (-1, -1)
        self.rounds = 0
        self.slowest_s = 0.0

    async def _call(self, request: Any, version: int) -> Any:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        reply = await self._caller.call(request, version)
        self.slowest_s = max(self.slowest_s, loop.time() - started_s)
        return reply

    async def begin(self) -> None:
        await self._call(CreateTopicsRequest(topics=[CreatableTopic(self._name, 2, 1)]), 5)
        for key_type in (0, 1):
            found = await self._call(FindCoordinatorRequest(self._name, key_type), 3)
            assert found.error_code == 0, found
        protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]
        joining = JoinGroupRequest(self._name, 120_000, 120_000, protocol_type="consumer", protocols=protocols)
        joined = await self._call(joining, 3)
        assert joined.error_code == 0, joined
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(self._member_id, b"all")]
        synced = await self._call(
            SyncGroupRequest(self._name, self._generation, self._member_id, assignments=assignments), 3
        )
        assert synced.assignment == b"all", synced
        identity = await self._call(InitProducerIdRequest(self._name, 300_000), 4)
        assert identity.error_code == 0, identity
        self._producer = (identity.producer_id, identity.producer_epoch)

    async def work(self) -> None:
        """One round. Raises AssertionError when anything is not as if nobody else was there."""
        await self._write_and_read()
        await self._commit_offset()
        await self._commit_transaction()
        self.rounds += 1

    async def _produce(self, partition: int, batch: bytes, transactional_id: str | None = None) -> int:
        data = [TopicProduceData(name=self._name, partition_data=[PartitionProduceData(partition, memoryview(batch))])]
        reply = await self._call(ProduceRequest(transactional_id, -1, 60_000, data), 12)
        (answer,) = reply.responses[0].partition_responses
        assert answer.error_code == 0, answer
        offset: int = answer.base_offset
        return offset

    async def _write_and_read(self) -> None:
        value = b"round %d" % self.rounds
        records = [Record(index, now_ms(), b"k", value, ()) for index in range(2)]
        batch = bytes(build_batch(records))
        assert await self._produce(0, batch) == self._offset
        wanted = FetchPartition(0, fetch_offset=self._offset, partition_max_bytes=1_000_000)
        request = FetchRequest(max_wait_ms=5_000, min_bytes=1, topics=[FetchTopic(self._name, partitions=[wanted])])
        reply = await self._call(request, 12)
        (found,) = reply.responses[0].partitions
        (read,) = iterate_batches(found.records)
        assert read.header.base_offset == self._offset
        assert bytes(read.buffer[16:]) == batch[16:]
        self._offset += 2

    async def _commit_offset(self) -> None:
        heartbeat = await self._call(HeartbeatRequest(self._name, self._generation, self._member_id), 3)
        assert heartbeat.error_code == 0, ErrorCode(heartbeat.error_code)
        partitions = [OffsetCommitRequestPartition(0, self._offset)]
        topics = [OffsetCommitRequestTopic(self._name, partitions=partitions)]
        commit = OffsetCommitRequest(self._name, self._generation, self._member_id, topics=topics)
        reply = await self._call(commit, 7)
        assert reply.topics[0].partitions[0].error_code == 0, reply
        fetch = OffsetFetchRequest(self._name, [OffsetFetchRequestTopic(self._name, [0])])
        fetched = await self._call(fetch, 7)
        assert fetched.topics[0].partitions[0].committed_offset == self._offset

    async def _commit_transaction(self) -> None:
        producer_id, epoch = self._producer
        batch = build_batch(
            [Record(0, now_ms(), b"k", b"v", ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        await self._produce(1, bytes(batch), self._name)
        ended = await self._call(EndTxnRequest(self._name, producer_id, epoch, True), 5)
        assert ended.error_code == 0, ErrorCode(ended.error_code)
        self._producer = (ended.producer_id, ended.producer_epoch)


@contextlib.asynccontextmanager
async def watched(host: str, port: int) -> AsyncIterator[Witness]:
    """A witness that works as long as the context lasts; whatever it sees wrong is raised at the end."""
    caller = await Caller.connect(host, port)
    witness = Witness(caller)
    await witness.begin()
    is_over = False

    async def work() -> None:
        while not is_over:
            await witness.work()
            await asyncio.sleep(0.01)

    working = asyncio.create_task(work())
    try:
        yield witness
    finally:
        is_over = True
        try:
            await working
        finally:
            caller.close()


async def victims(host: str, port: int) -> list[bytes]:
    """Make the topic that hostile requests name, and return its id."""
    caller = await Caller.connect(host, port)
    created = await caller.call(CreateTopicsRequest(topics=[CreatableTopic(VICTIM_TOPIC, 3, 1)]), 7)
    caller.close()
    return [topic.topic_id for topic in created.topics if topic.topic_id != bytes(16)]
