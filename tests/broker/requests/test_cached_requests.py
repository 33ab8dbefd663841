"""Requests that are found in the cache: how they may be written, how they fail, and what clients send by chance.

Two brokers get the same frames, one of them from a connection whose cache is empty; see
`tests.broker.network.test_one_way_for_a_request` for what each API answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.group.service import GroupService
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.broker.transaction.service import TransactionService
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import EndTxnRequest
from fencepost.protocol.shape import ReplyForm
from tests.support.equal_brokers import TOPICS, EqualBrokers, equal_brokers
from tests.support.equal_requests import (
    TRANSACTIONAL_ID,
    add,
    commit,
    end,
    errors,
    expect,
    fetch,
    new_producer,
    one_of_each,
    produce,
)
from tests.support.handler_context import NOW_MS, batch

PAGE_CACHE, DURABLE = 2**63 - 1, 1
LONG_MS = 60_000
STEPS_COUNT = 300
UNKNOWN_FIELD = b"\x01\x63\x02ab"
"""In place of no tagged fields: field 99."""


def fail(*_: object, **__: object) -> None:
    raise KeyError("a defect")


async def fail_later(*_: object, **__: object) -> None:
    fail()


def is_answered(request: Any) -> bool:
    return getattr(request, "acks", -1) != 0


@pytest.mark.parametrize(
    "rewritten",
    [
        lambda frame: frame[:-1] + UNKNOWN_FIELD,
        lambda frame: frame.replace(b"\x02\x07orders", b"\x82\x00\x07orders"),
        lambda frame: frame + b"\0",
        lambda frame: frame + b"junk",
        lambda frame: frame[:-1],
    ],
    ids=["an unknown field", "a longer length", "a byte behind it", "several bytes behind it", "cut off"],
)
async def test_a_request_that_is_written_in_another_way_is_answered_as_it_is_written(
    tmp_path: Path, rewritten: Callable[[bytes], bytes]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        requests = [(request, version) for request, version, _, _ in await one_of_each(brokers)]
        ended = requests[-1][0]
        for request, version in (*requests, (produce(brokers, 13, batch(), batch()), 13), (ended, 5)):
            for is_rewritten in (False, True, True, False, True, False):
                frame = brokers.frame(request, version)
                await brokers.send_frame(rewritten(frame) if is_rewritten else frame)
                await brokers.settle()


@pytest.mark.parametrize("flush_messages", [DURABLE, PAGE_CACHE], ids=["durable", "page cache"])
async def test_the_memory_of_a_frame_is_free_when_its_request_is_answered(tmp_path: Path, flush_messages: int) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=flush_messages) as brokers:
        refused = [
            produce(brokers, 12, batch(bytes(5_000)), topic="missing"),
            produce(brokers, 12, batch(bytes(5_000))[:-1]),
            produce(brokers, 12, batch(bytes(5_000)), None),
        ]
        requests = [(one[0], one[1]) for one in await one_of_each(brokers)] + [(request, 12) for request in refused]
        for request, version in requests * 3:
            await brokers.send(request, version)
            for side in brokers.sides:
                side.client.memory.append(0)  # raises BufferError if the frame's memory is kept
            await brokers.settle()


@pytest.mark.parametrize("planted", [fail, fail_later])
async def test_a_request_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., Any]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        requests = [(one[0], one[1]) for one in await one_of_each(brokers) if is_answered(one[0])]
        for request, version in requests:
            await expect(brokers, request, version, 0)
            await brokers.settle()
        with monkeypatch.context() as broken:
            for owner, name in ((GroupService, "commit_offsets"), (TransactionService, "add_partitions")):
                broken.setattr(owner, name, planted)
            broken.setattr(TransactionService, "end_transaction", planted)
            for name in ("append", "read"):
                broken.setattr(PartitionLog, name, fail)
            for request, version in requests:
                await expect(brokers, request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        for request, version in requests:
            await expect(brokers, request, version, 0)
            await brokers.settle()


@pytest.mark.parametrize(("planted", "sent_count"), [("write", 2), ("__init__", 1)])
async def test_a_reply_that_fails_unexpectedly_is_answered_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, sent_count: int
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:

        async def is_answered_as_a_failure(request: Any, version: int) -> None:
            frame = brokers.frame(request, version)
            with monkeypatch.context() as broken:
                broken.setattr(ReplyForm, planted, fail)
                failed = await brokers.warm.send(frame)
            assert errors(brokers.decoded(failed, request, version)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
            await brokers.sides[1].send(frame)
            await brokers.settle()
            assert errors(await brokers.send(request, version)) == {0}

        for request, version, name, _ in await one_of_each(brokers):
            if name == "EndTxn" or not is_answered(request):
                continue
            for _ in range(sent_count):
                await brokers.send(request, version)
                await brokers.settle()
            await is_answered_as_a_failure(request, version)
        producer = await new_producer(brokers)
        for _ in range(sent_count):
            await brokers.send(add(producer, 3, 0), 3)
            ended = await brokers.send(end(producer), 5)
            producer = ended.producer_id, ended.producer_epoch
            await brokers.settle()
        await brokers.send(add(producer, 3, 0), 3)
        await is_answered_as_a_failure(end(producer), 5)


@pytest.mark.parametrize("planted", [(PartitionLog, "read"), (ReplyForm, "write")])
async def test_a_fetch_that_fails_after_a_wait_is_answered_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: tuple[type, str]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        await brokers.send(produce(brokers, 12, batch(b"a")), 12)
        for _ in range(2):
            await brokers.send(fetch(brokers, 12, 0, max_wait_ms=LONG_MS), 12)
        request = fetch(brokers, 12, 0, offset=1, max_wait_ms=LONG_MS)
        waiting = asyncio.ensure_future(brokers.warm.send(brokers.frame(request, 12)))
        await asyncio.sleep(0)
        assert not waiting.done()
        with monkeypatch.context() as broken:
            broken.setattr(*planted, fail)
            await brokers.send(produce(brokers, 12, batch(b"b"), batch(b"b")), 12)
            await brokers.settle()
            failed = brokers.decoded(await waiting, request, 12)
        assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await expect(brokers, request, 12, 0)


async def test_a_fetch_does_not_wait_without_its_client(tmp_path: Path) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        await brokers.send(produce(brokers, 12, batch(b"a")), 12)
        await brokers.send(fetch(brokers, 12, 0, max_wait_ms=LONG_MS), 12)
        frame = brokers.frame(fetch(brokers, 12, 0, offset=1, max_wait_ms=LONG_MS), 12)
        waiting = asyncio.ensure_future(brokers.warm.send(frame))
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        assert brokers.known_count == 1
        assert not brokers.warm.log("orders").watchers._callbacks


def fail_to_append(*_: object) -> None:
    raise StorageError("the disk is gone")


async def fail_to_sync(*_: object) -> None:
    raise StorageError("the disk is gone")


@pytest.mark.parametrize("patched", [(LocalFile, "append", fail_to_append), (LocalDisk, "sync", fail_to_sync)])
async def test_batches_that_cannot_be_stored_are_answered_as_if_they_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: tuple[type, str, Any]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=DURABLE) as brokers:
        requests = [produce(brokers, 12, batch()), produce(brokers, 12, batch(), batch(), topic="returns")]
        for request in requests:
            await expect(brokers, request, 12, 0)
            with monkeypatch.context() as broken:
                broken.setattr(*patched)
                assert errors(await brokers.send(request, 12)) == {ErrorCode.KAFKA_STORAGE_ERROR}
            await expect(brokers, request, 12, ErrorCode.KAFKA_STORAGE_ERROR)


async def test_records_that_cannot_be_read_are_answered_as_if_the_request_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        for _ in range(2):
            await brokers.send(produce(brokers, 12, batch(b"a")), 12)
        await expect(brokers, fetch(brokers, 12, 0), 12, 0)
        with monkeypatch.context() as broken:
            broken.setattr(LocalFile, "read", fail_to_append)
            assert errors(await brokers.send(fetch(brokers, 12, 0), 12)) == {ErrorCode.KAFKA_STORAGE_ERROR}


async def test_a_cached_request_is_answered_when_all_that_it_wrote_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = asyncio.Event()
    may_sync.set()
    sync = LocalDisk.sync

    async def sync_later(*arguments: Any) -> None:
        await may_sync.wait()
        await sync(*arguments)

    monkeypatch.setattr(LocalDisk, "sync", sync_later)
    async with equal_brokers(tmp_path, log_flush_interval_messages=DURABLE) as brokers:
        producer = await new_producer(brokers)
        requests = [
            (produce(brokers, 12, batch()), 12),
            (produce(brokers, 12, batch(), batch()), 12),
            (commit(brokers, 9, 5, 0, 1), 9),
            (add(producer, 3, 0), 3),
            (end(producer), 4),
        ]
        for _ in range(2):
            for request, version in requests:
                assert errors(await brokers.send(request, version)) == {0}
                await brokers.settle()
        known_count = brokers.known_count
        for request, version in requests:
            may_sync.clear()
            waiting = await brokers.begin(request, version)
            may_sync.set()
            assert errors(brokers.decoded(await waiting, request, version)) == {0}
            await brokers.settle()
        assert brokers.known_count == known_count + len(requests)


# By chance


class Clients:
    """Requests by chance: what clients send, now and then what they should not."""

    def __init__(self, seed: int, brokers: EqualBrokers, producer: tuple[int, int]) -> None:
        self._random = choose = random.Random(seed)
        self._brokers = brokers
        self.producer = producer
        self._sequences: dict[tuple[Any, ...], int] = {}
        self._kinds: list[tuple[Callable[[int], Any], int, int]] = [
            (self._produce, choose.randrange(3, 14), 3),
            (self._fetch, choose.randrange(4, 19), 4),
            (self._commit, choose.randrange(2, 11), 2),
            (self._add, choose.randrange(6), 0),
            (self._end, choose.randrange(6), 0),
        ]
        self._fetches: list[dict[str, Any]] = [
            {
                "max_bytes": choose.choice((10_000_000, 10_000_000, 0, 150)),
                "isolation_level": choose.choice((0, 1)),
                "max_wait_ms": choose.choice((0, 0, 1)),
                "min_bytes": choose.choice((0, 1, 90)),
            }
            for _ in range(3)
        ]

    def request(self) -> tuple[Any, int]:
        """A request and its version."""
        make, usual_version, first_version = self._random.choices(self._kinds, weights=(6, 6, 3, 2, 2))[0]
        version = usual_version
        if not self._random.randrange(20):
            version = self._random.randrange(first_version, usual_version + 1)
        return make(version), version

    def take(self, request: Any, response: Any) -> None:
        """Continue with the epoch of the producer that EndTxn 5 returns."""
        if isinstance(request, EndTxnRequest) and getattr(response, "producer_id", -1) >= 0:
            self.begin_anew((response.producer_id, response.producer_epoch))

    def begin_anew(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self._sequences.clear()

    def _topic(self) -> str:
        return self._random.choice(("orders", "orders", "orders", "returns", "missing"))

    def _where(self, version: int, first_by_id: int) -> dict[str, Any]:
        topic = self._topic()
        if topic == "missing":
            return {"topic_id": b"no such topic id"} if version >= first_by_id else {"topic": topic}
        return {"topic": topic}

    def _produce(self, version: int) -> Any:
        choose = self._random
        where = self._where(version, 13)
        is_transactional = not choose.randrange(3)
        first, count = choose.choice(((0, 1), (0, 1), (0, 2), (1, 1), (0, 3), (7, 1)))
        batches = [self._records((str(where), first + index, is_transactional)) for index in range(count)]
        return produce(
            self._brokers,
            version,
            *batches,
            first=first,
            acks=choose.choice((-1,) * 9 + (1, 0, 5)),
            transactional_id=TRANSACTIONAL_ID if is_transactional else None,
            **where,
        )

    def _records(self, key: tuple[str, int, bool]) -> bytes | None:
        choose = self._random
        values = [choose.randbytes(choose.choice((0, 1, 20, 200))) for _ in range(choose.randrange(1, 9))]
        timestamp_ms = NOW_MS + choose.choice((0, 0, 0, -5, 7, 10**10))
        codec = choose.choice((Codec.NONE, Codec.ZSTD, Codec.GZIP))
        plain = batch(*values, timestamp_ms=timestamp_ms, codec=codec)
        match choose.randrange(40):
            case 0:
                return choose.choice((None, b"", plain[:-1], plain[:40], plain * 2, bytes(70)))
            case 1:
                changed = bytearray(plain)
                changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
                return bytes(changed)
        if not key[2] and choose.randrange(2):
            return plain
        sequence = max(0, self._sequences.get(key, 0) + choose.choice((0,) * 15 + (-1, 1)))
        self._sequences[key] = sequence + len(values)
        producer = self.producer if key[2] else (5_000, 0)
        return batch(
            *values,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=key[2],
        )

    def _fetch(self, version: int) -> Any:
        choose = self._random
        end_offset = self._brokers.warm.log("orders").log_end_offset
        return fetch(
            self._brokers,
            version,
            *choose.choice(((0,), (0,), (1, 0), (0, 1, 2), (7,), (1, 1))),
            offset=end_offset if choose.randrange(2) else choose.randrange(-1, end_offset + 2),
            leader_epoch=choose.choice((-1,) * 9 + (0, 1)),
            **choose.choice(self._fetches),
            **self._where(version, 13),
        )

    def _commit(self, version: int) -> Any:
        choose = self._random
        generation: dict[str, Any] = choose.choice(
            ({},) * 6 + ({"generation_id_or_member_epoch": 1, "member_id": "stranger"},)
        )
        partitions = choose.choice(((0,), (0,), (0, 1), (1, 7), ()))
        return commit(
            self._brokers,
            version,
            choose.choice((-1, 0, 5, choose.getrandbits(63))),
            *partitions,
            group_id=choose.choice(("g", "g", "g", "h", "")),
            **generation,
            **self._where(version, 10),
        )

    def _identity(self) -> tuple[int, int]:
        return self.producer if self._random.randrange(20) else (self.producer[0], self.producer[1] - 1)

    def _add(self, version: int) -> Any:
        partitions = self._random.choice(((0, 1), (0, 1), (0, 1, 2), (7,), ()))
        return add(self._identity(), version, *partitions, topic=self._topic())

    def _end(self, _: int) -> Any:
        return end(self._identity(), committed=bool(self._random.randrange(4)))


async def happen(brokers: EqualBrokers, choose: random.Random, clients: Clients) -> None:
    """What an administrator, another client or time does between two requests; mostly, nothing."""
    configs = ({"message.timestamp.type": "LogAppendTime"}, {"max.message.bytes": "300"}, {"compression.type": "gzip"})
    topic, config = choose.choice(tuple(TOPICS)), choose.choice(configs)
    before_offset = choose.randrange(4)
    match choose.randrange(40):
        case 0:
            await brokers.delete(topic)
            await brokers.create(topic)
        case 1:
            await brokers.each(lambda side: side.node.services.topics.alter_configs(topic, config))
        case 2:
            offsets = {TopicPartition(topic, 0): before_offset}
            await brokers.each(lambda side: side.node.services.topics.delete_records(offsets))
        case 3:
            for side in brokers.sides:
                side.log(topic).lead(side.log(topic).leader_epoch + 1)
        case 4:
            clients.begin_anew(await new_producer(brokers))
        case 5 | 6:
            await brokers.advance(before_offset)


@pytest.mark.parametrize("seed", range(8))
async def test_cached_requests_are_answered_and_stored_like_decoded_ones(tmp_path: Path, seed: int) -> None:
    choose = random.Random(-1 - seed)
    async with equal_brokers(tmp_path, log_flush_interval_messages=DURABLE if seed % 2 else PAGE_CACHE) as brokers:
        clients = Clients(seed, brokers, await new_producer(brokers))
        for _ in range(STEPS_COUNT):
            await happen(brokers, choose, clients)
            request, version = clients.request()
            for _ in range(choose.choice((1, 2))):
                response = await brokers.send(request, version)
                await brokers.settle()
            clients.take(request, response)
        assert brokers.known_count >= STEPS_COUNT // 4
