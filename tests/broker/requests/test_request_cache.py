"""The cache of decoded requests of a connection: what it finds, what it has room for, and what it must not keep."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fencepost.broker.network.inbox import MINIMUM_FRAME_BYTES
from fencepost.broker.requests import request_cache
from fencepost.broker.requests.api import APIS
from fencepost.broker.requests.request_cache import (
    MAXIMUM_ALIKE,
    MAXIMUM_BYTES,
    MAXIMUM_COUNT,
    MAXIMUM_LAYOUTS,
    MAXIMUM_RECORDS,
    CachedRequest,
    RequestCache,
)
from fencepost.broker.requests.routes import Route
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import read_client_id, read_request_start
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from fencepost.protocol.schema import DecodeError, decode
from fencepost.protocol.shape import shape_of
from tests.support.captured_events import capture_logs

BITS_COUNT = 8


class Decoded:
    """A frame as it is without a cache."""

    def __init__(self, frame: bytes | bytearray | memoryview) -> None:
        api_key, self.version, self.correlation_id = read_request_start(frame)
        self.route = Route(APIS[api_key], self.version)
        self.client_id, self.body_position = read_client_id(memoryview(frame), self.route.header_version)
        self.request = decode(self.route.api.request, frame, self.version, self.body_position)


class Client:
    """A connection with a cache. Each request is found, or decoded and remembered, as the dispatcher does it."""

    def __init__(self) -> None:
        self.cache = RequestCache()

    def send(self, frame: bytes) -> bool:
        """Return whether the cache has found the request, which it has as it was sent."""
        memory = bytearray(frame)
        is_found = self._send(memoryview(memory))
        memory.append(0)  # raises BufferError if the frame's memory is kept
        return is_found

    def _send(self, frame: memoryview) -> bool:
        found = self.cache.find(frame)
        sent = Decoded(frame)
        if found is None:
            self.cache.remember(frame, sent.body_position, sent.request, sent.route, sent.client_id)
            return False
        assert is_as_sent(found, sent)
        found[0].drop_records()
        return True


def is_as_sent(found: tuple[CachedRequest, int], sent: Decoded) -> bool:
    cached, correlation_id = found
    return (
        cached.route.api is sent.route.api
        and cached.route.version == sent.version
        and correlation_id == sent.correlation_id
        and cached.client_id == sent.client_id
        and cached.request == sent.request
    )


def framed(request: Any, version: int, *, correlation_id: int = 1, client_id: str | None = "client") -> bytes:
    """A frame as it reaches the cache: without its length."""
    return request_frame(correlation_id, client_id, request, version)[LENGTH_BYTES:]


def end_txn(transactional_id: str = "tx", *, epoch: int = 0) -> bytes:
    request = EndTxnRequest(transactional_id=transactional_id, producer_id=5, producer_epoch=epoch, committed=True)
    return framed(request, 4)


def commit(metadata: str = "", *, group_id: str = "g", offset: int = 7) -> bytes:
    partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    return framed(OffsetCommitRequest(group_id=group_id, topics=topics), 9)


def produce(
    *batches: bytes | None, version: int = 12, first: int = 0, client_id: str = "client", topic: str = "orders"
) -> bytes:
    partitions = [PartitionProduceData(index=first + index, records=one) for index, one in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    return framed(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), version, client_id=client_id)


def fetch(*partitions: int, offset: int = 0, version: int = 12, **fields: Any) -> bytes:
    requested = [FetchPartition(partition, fetch_offset=offset) for partition in partitions]
    return framed(FetchRequest(topics=[FetchTopic(topic="orders", partitions=requested)], **fields), version)


def add_partitions(version: int) -> bytes:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=1,
            v3_and_below_topics=topics,
        )
    else:
        request = AddPartitionsToTxnRequest(
            transactions=[AddPartitionsToTxnTransaction(transactional_id="tx", producer_id=7, topics=topics)]
        )
    return framed(request, version)


def end_txns(count: int, start: int = 0) -> list[bytes]:
    return [end_txn(f"tx-{number:05}") for number in range(start, start + count)]


@pytest.fixture
def client() -> Client:
    return Client()


def some_requests() -> Iterator[tuple[str, bytes]]:
    """One of each kind, in all versions."""
    for version in range(3, 14):
        yield f"Produce-{version}", produce(b"a batch" * 3, version=version)
        yield f"Produce-of-several-{version}", produce(b"one", b"", b"two" * 50, version=version)
    for version in range(4, 19):
        yield f"Fetch-{version}", fetch(0, version=version)
        yield f"Fetch-of-several-{version}", fetch(2, 0, version=version)
    for version in range(7, 19):
        forgotten = [ForgottenTopic(topic="orders", partitions=[1])]
        yield (
            f"Fetch-of-a-session-{version}",
            fetch(3, version=version, session_id=77, session_epoch=3, forgotten_topics_data=forgotten),
        )
    yield "Fetch-of-a-follower", fetch(3, version=17, replica_state=ReplicaState(3, 5), cluster_id="cluster")
    for version in range(2, 11):
        partitions = [OffsetCommitRequestPartition(index, committed_offset=index * 9) for index in range(2)]
        topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
        yield f"OffsetCommit-{version}", framed(OffsetCommitRequest(group_id="g", topics=topics), version)
    for version in range(6):
        yield f"AddPartitionsToTxn-{version}", add_partitions(version)
        request = EndTxnRequest(transactional_id="tx", producer_id=5, producer_epoch=9, committed=True)
        yield f"EndTxn-{version}", framed(request, version)


SOME_REQUESTS = dict(some_requests())
for_every_kind: Callable[[Any], Any] = pytest.mark.parametrize("frame", SOME_REQUESTS.values(), ids=list(SOME_REQUESTS))


# What is found


@for_every_kind
def test_a_request_is_found_when_it_comes_again(client: Client, frame: bytes) -> None:
    assert [client.send(frame) for _ in range(3)] == [False, True, True]
    assert len(client.cache) == 1


@for_every_kind
def test_correlation_ids_vary(client: Client, frame: bytes) -> None:
    client.send(frame)
    for correlation_id in (0, -1, 2**31 - 1, -(2**31)):
        assert client.send(frame[:4] + correlation_id.to_bytes(4, "big", signed=True) + frame[8:])


def test_what_an_api_declares_to_vary_varies(client: Client) -> None:
    client.send(produce(b"a"))
    assert client.send(produce(b"another"))
    assert client.send(produce(b"x" * 100_000))
    client.send(fetch(0, 1, offset=5, session_id=9, session_epoch=3))
    assert client.send(fetch(0, 1, offset=2**63 - 1, session_id=9, session_epoch=-1))
    client.send(end_txn(epoch=1))
    assert client.send(end_txn(epoch=-(2**15)))
    client.send(commit(offset=1))
    assert client.send(commit(offset=-(2**63)))


def test_nothing_else_varies(client: Client) -> None:
    for frame in (
        produce(b"a"),
        produce(b"a", first=1),
        produce(b"a", version=11),
        produce(b"a", topic="others"),
        produce(b"a", client_id="klient"),
        produce(b"a", b"a"),
        fetch(0),
        fetch(1),
        fetch(0, session_id=9),
        fetch(0, isolation_level=1),
        fetch(0, version=11),
        end_txn("tx"),
        end_txn("ty"),
        commit(),
        commit("m"),
        commit(group_id="h"),
    ):
        assert not client.send(frame)


def test_a_request_of_another_client_id_is_another_one(client: Client) -> None:
    for client_id in ("client", "klient", "", None, "client-1"):
        request = EndTxnRequest(transactional_id="tx")
        frame = framed(request, 4, client_id=client_id)
        assert [client.send(frame) for _ in range(2)] == [False, True]


def test_requests_of_two_apis_of_equal_size_are_distinguished(client: Client) -> None:
    one = fetch(0)
    partition = OffsetCommitRequestPartition(committed_offset=3, committed_metadata="")
    commits = [
        framed(
            OffsetCommitRequest(
                group_id="g" * count, topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])]
            ),
            9,
        )
        for count in range(1, 60)
    ]
    other = next(frame for frame in commits if len(frame) == len(one))
    for _ in range(3):
        found = [client.send(frame) for frame in (one, other)]
    assert found == [True, True]


def test_an_api_that_declares_nothing_is_not_cached(client: Client) -> None:
    frame = framed(MetadataRequest(topics=[]), 12)
    assert not any(client.send(frame) for _ in range(3))
    assert len(client.cache) == 0


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("place", range(2))
def test_null_records_are_not_cached(client: Client, version: int, place: int) -> None:
    batches: list[bytes | None] = [b"batch", b"batch"]
    with_null = list(batches)
    with_null[place] = None
    for _ in range(2):
        assert not client.send(produce(*with_null, version=version))
    assert len(client.cache) == 0
    client.send(produce(*batches, version=version))
    assert client.send(produce(*batches, version=version))
    assert not client.send(produce(*with_null, version=version)), "null is not an empty batch"


@for_every_kind
def test_a_frame_that_is_cut_off_or_longer_is_not_found(client: Client, frame: bytes) -> None:
    client.send(frame)
    for size in range(MINIMUM_FRAME_BYTES, len(frame)):
        assert client.cache.find(memoryview(frame[:size])) is None
    for behind in (b"\0", b"\1", b"\xff" * 4, frame):
        assert client.cache.find(memoryview(frame + behind)) is None
    assert client.send(frame)


@for_every_kind
def test_a_frame_with_a_flipped_bit_is_found_as_it_would_be_decoded_or_not_at_all(client: Client, frame: bytes) -> None:
    client.send(frame)
    for bit in range(len(frame) * BITS_COUNT):
        found_as_decoded(client, flipped(frame, [bit]))
    assert client.send(frame)


@for_every_kind
def test_a_frame_with_several_flipped_bits_is_found_as_it_would_be_decoded_or_not_at_all(frame: bytes) -> None:
    choose = random.Random(len(frame))
    client = Client()
    others = [other for other in SOME_REQUESTS.values() if other[:4] == frame[:4]]
    for one in others:
        client.send(one)
    for _ in range(300):
        start = choose.randrange(len(frame)) * BITS_COUNT
        bits = [min(start + choose.randrange(40), len(frame) * BITS_COUNT - 1) for _ in range(choose.choice((2, 3, 8)))]
        found_as_decoded(client, flipped(frame, bits))


def flipped(frame: bytes, bits: Sequence[int]) -> bytes:
    changed = bytearray(frame)
    for bit in bits:
        changed[bit // BITS_COUNT] ^= 1 << bit % BITS_COUNT
    return bytes(changed)


def found_as_decoded(client: Client, frame: bytes) -> None:
    found = client.cache.find(memoryview(frame))
    if found is not None:
        assert is_as_sent(found, Decoded(frame))
        found[0].drop_records()


def test_a_length_of_records_beyond_the_frame_is_not_found(client: Client) -> None:
    for version in (8, 12):
        frame = produce(b"batch", version=version)
        client.send(frame)
        start = frame.index(b"batch")
        for length in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"):
            found_as_decoded_or_refused(client, frame[: start - 4] + length + frame[start:])
        for length in (b"\xff", b"\xff\xff\xff\xff\xff", b"\x80", b"\x00"):
            found_as_decoded_or_refused(client, frame[: start - 1] + length + frame[start:])
            found_as_decoded_or_refused(client, frame[: start - 1] + length)


def found_as_decoded_or_refused(client: Client, frame: bytes) -> None:
    found = client.cache.find(memoryview(frame))
    try:
        sent = Decoded(frame)
    except DecodeError:
        assert found is None
    else:
        assert found is None or is_as_sent(found, sent)


def test_caches_of_connections_are_their_own() -> None:
    one, other = Client(), Client()
    one.send(end_txn())
    assert not other.send(end_txn())
    one.cache.clear()
    assert len(one.cache) == 0
    assert not one.send(end_txn())
    assert other.send(end_txn())


# Room


def test_an_api_has_room_for_some_requests_of_a_connection(client: Client) -> None:
    frames = end_txns(MAXIMUM_COUNT)
    for frame in frames:
        client.send(frame)
    assert len(client.cache) == MAXIMUM_COUNT
    assert all(client.send(frame) for frame in frames)


def test_what_is_not_repeated_makes_room_for_others(client: Client) -> None:
    frames = end_txns(MAXIMUM_COUNT)
    for frame in frames:
        client.send(frame)
    for frame in frames[::2]:
        assert client.send(frame)
    new = end_txn("new")
    assert not client.send(new)
    assert len(client.cache) == MAXIMUM_COUNT // 2 + 1
    assert client.send(new)
    assert all(client.send(frame) for frame in frames[::2])
    assert not any(client.send(frame) for frame in frames[1::2])


def test_what_was_repeated_long_ago_makes_room_for_others(client: Client) -> None:
    for number in range(10 * MAXIMUM_COUNT):
        for _ in range(2):
            client.send(end_txn(f"tx-{number:05}"))
            assert len(client.cache) <= MAXIMUM_COUNT
    assert client.send(end_txn(f"tx-{number:05}"))


def test_a_client_that_goes_on_to_other_requests_is_served_from_the_cache_again(client: Client) -> None:
    for generation in range(4):
        frames = end_txns(MAXIMUM_COUNT, start=generation * MAXIMUM_COUNT)
        for _ in range(3):
            for frame in frames:
                client.send(frame)
        assert sum(client.send(frame) for frame in frames) >= MAXIMUM_COUNT // 2


def test_what_is_repeated_stays_while_others_come_and_go(client: Client) -> None:
    steady = end_txn("steady")
    client.send(steady)
    client.send(steady)
    assert all(client.send(steady) for frame in end_txns(10 * MAXIMUM_COUNT) if client.send(frame) is False)


def test_a_client_whose_requests_never_repeat_has_no_cache(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for frame in end_txns(MAXIMUM_COUNT + 1):
        client.send(frame)
    assert len(client.cache) == 0

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it pays for the cache")

    monkeypatch.setattr(request_cache, "shape_of", fail)
    for frame in end_txns(3 * MAXIMUM_COUNT, start=MAXIMUM_COUNT) * 2:
        assert not client.send(frame)


def test_a_client_whose_requests_cannot_be_cached_is_given_up_in_silence(client: Client) -> None:
    """They have no shape: their records are null."""
    for _ in range(MAXIMUM_COUNT + 2):
        assert not client.send(produce(None))
    assert len(client.cache) == 0


def test_an_api_that_never_repeats_leaves_the_others_cached(client: Client) -> None:
    for frame in (commit(), produce(b"batch"), fetch(0)):
        client.send(frame)
    for frame in end_txns(MAXIMUM_COUNT * 2):
        client.send(frame)
    assert len(client.cache) == 3
    for frame in (commit(), produce(b"batch"), fetch(0)):
        assert client.send(frame)
    client.send(commit("another"))
    assert client.send(commit("another"))


def test_apis_have_room_of_their_own(client: Client) -> None:
    for number in range(MAXIMUM_COUNT):
        client.send(end_txn(f"tx-{number}"))
        client.send(commit(f"at {number}"))
        client.send(produce(b"batch", first=number))
        client.send(fetch(number))
    assert len(client.cache) == 4 * MAXIMUM_COUNT


@pytest.mark.parametrize("excess", [0, 1])
def test_a_request_that_is_too_large_is_not_remembered(client: Client, excess: int) -> None:
    frame = commit("m" * (MAXIMUM_BYTES + excess - len(commit()) - 1))
    assert len(frame) == MAXIMUM_BYTES + excess
    client.send(frame)
    assert client.send(frame) is (excess == 0)


@pytest.mark.parametrize("excess", [0, 1])
def test_records_do_not_count_towards_the_size_of_a_request(client: Client, excess: int) -> None:
    others_bytes = len(produce(b"", client_id="")) - 1
    client_id = "c" * (MAXIMUM_BYTES + excess - others_bytes)
    client.send(produce(b"x" * 50_000, client_id=client_id))
    assert client.send(produce(b"x" * 90_000, client_id=client_id)) is (excess == 0)


@pytest.mark.parametrize(
    "frame",
    [
        framed(FetchRequest(topics=[FetchTopic("orders", partitions=[FetchPartition(0)] * 20_000)]), 12),
        framed(
            OffsetCommitRequest(
                topics=[OffsetCommitRequestTopic("o", partitions=[OffsetCommitRequestPartition()] * 9_000)]
            ),
            9,
        ),
        produce(*[b"batch"] * 20_000),
    ],
    ids=["Fetch", "OffsetCommit", "Produce"],
)
def test_a_large_request_is_not_walked_through(frame: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("all of its fields are looked for")

    monkeypatch.setattr("fencepost.protocol.shape._locator", fail)
    sent = Decoded(frame)
    cache = RequestCache()
    cache.remember(memoryview(frame), sent.body_position, sent.request, sent.route, sent.client_id)
    assert len(cache) == 0


@pytest.mark.parametrize("count", [MAXIMUM_RECORDS, MAXIMUM_RECORDS + 1, 700])
def test_a_request_with_batches_for_very_many_partitions_is_not_remembered(client: Client, count: int) -> None:
    frame = produce(*[b"batch"] * count)
    client.send(frame)
    assert client.send(frame) is (count <= MAXIMUM_RECORDS)


def for_partition_0_and(partition: int) -> bytes:
    partitions = [PartitionProduceData(index=index, records=b"batch") for index in (0, partition)]
    return framed(ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=partitions)]), 12)


def test_few_requests_are_remembered_that_differ_behind_their_first_records(client: Client) -> None:
    frames = [for_partition_0_and(partition) for partition in range(1, MAXIMUM_ALIKE + 2)]
    for _ in range(2):
        found = [client.send(frame) for frame in frames[:MAXIMUM_ALIKE]]
    assert all(found)
    for _ in range(3):
        assert not client.send(frames[-1])
        assert all(client.send(frame) for frame in frames[:MAXIMUM_ALIKE])
    assert len(client.cache) == MAXIMUM_ALIKE


def test_a_client_whose_requests_always_differ_behind_their_first_records_does_not_pay_for_the_cache(
    client: Client, shapes: list[None]
) -> None:
    for partition in range(1, 10 * MAXIMUM_ALIKE):
        assert not client.send(for_partition_0_and(partition))
    assert len(shapes) == MAXIMUM_ALIKE + 1
    assert len(client.cache) == 0


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One element for each request whose shape was worked out."""
    made: list[None] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(None)
        return shape_of(*arguments, **options)

    monkeypatch.setattr(request_cache, "shape_of", counted)
    return made


# Layouts: requests whose varying fields are at the same positions


def of_lengths(count: int, start: int = 1) -> list[bytes]:
    """Requests with records at different positions."""
    return [produce(b"batch", topic="t" * length) for length in range(start, start + count)]


def test_few_layouts_are_tried_one_after_the_other(client: Client) -> None:
    frames = of_lengths(3 * MAXIMUM_LAYOUTS)
    for _ in range(3):
        for frame in frames[:MAXIMUM_LAYOUTS]:
            client.send(frame)
    for _ in range(3):
        found = [client.send(frame) for frame in frames]
    assert found == [True] * MAXIMUM_LAYOUTS + [False] * 2 * MAXIMUM_LAYOUTS


@pytest.mark.parametrize("count", [MAXIMUM_LAYOUTS + 1, 2 * MAXIMUM_LAYOUTS, 5 * MAXIMUM_LAYOUTS])
def test_a_client_that_begins_with_many_layouts_is_served_from_the_cache(client: Client, count: int) -> None:
    frames = of_lengths(count)
    for frame in frames:
        client.send(frame)
    for _ in range(2 * MAXIMUM_COUNT):
        client.send(frames[0])
        client.send(frames[-1])
    assert client.send(frames[0])
    assert client.send(frames[-1])


def test_a_layout_that_is_not_used_makes_room_for_others(client: Client) -> None:
    frames = of_lengths(MAXIMUM_LAYOUTS)
    for frame in frames:
        client.send(frame)
    for frame in frames[::2]:
        assert client.send(frame)
    others = of_lengths(MAXIMUM_LAYOUTS // 2, start=100)
    assert not any(client.send(frame) for frame in others)
    assert all(client.send(frame) for frame in (*frames[::2], *others))
    assert not any(client.send(frame) for frame in frames[1::2])


def test_a_client_with_more_layouts_than_there_is_room_for_does_not_pay_for_each_of_them(
    client: Client, shapes: list[None]
) -> None:
    frames = of_lengths(3 * MAXIMUM_LAYOUTS)
    for frame in frames[:MAXIMUM_LAYOUTS] * 2:
        client.send(frame)
    shapes.clear()
    rounds_count = 100
    found_count = sum(client.send(frame) for frame in frames * rounds_count)
    assert found_count >= MAXIMUM_LAYOUTS * rounds_count // 2
    missed_count = len(frames) * rounds_count - found_count
    assert len(shapes) <= MAXIMUM_LAYOUTS + missed_count // (MAXIMUM_COUNT // 2)


def of_equal_size(count: int) -> list[bytes]:
    """Requests of one API that are equally long, with their offsets at different positions."""
    return [commit("m" * (20 - length), group_id="g" * length) for length in range(1, 1 + count)]


def test_requests_of_equal_size_with_their_fields_elsewhere_are_distinguished(client: Client) -> None:
    frames = of_equal_size(MAXIMUM_LAYOUTS)
    assert len({len(frame) for frame in frames}) == 1
    for frame in frames:
        client.send(frame)
    assert all(client.send(frame) for frame in frames)
    assert not client.send(of_equal_size(MAXIMUM_LAYOUTS + 1)[-1])
    assert all(client.send(frame) for frame in frames)


def test_an_api_is_not_switched_off_by_requests_of_another_that_are_as_long(client: Client) -> None:
    """They share the layouts of that size."""
    frames = of_equal_size(MAXIMUM_LAYOUTS)
    for frame in frames * 2:
        client.send(frame)
    size = len(frames[0])
    ending = end_txn("t" * (size - len(end_txn(""))))
    assert len(ending) == size
    with capture_logs() as logs:
        for _ in range(3):
            client.send(ending)
    assert logs == []
    client.send(end_txn("another"))
    assert client.send(end_txn("another"))
    assert all(client.send(frame) for frame in frames)


@pytest.mark.parametrize("frame", [bytes(MINIMUM_FRAME_BYTES), bytes(MINIMUM_FRAME_BYTES + 1), b"\xff" * 20])
def test_a_frame_that_is_no_request_leaves_the_cache_as_it_is(client: Client, frame: bytes) -> None:
    for request in (produce(b"batch"), end_txn()):
        client.send(request)
    with capture_logs() as logs:
        assert client.cache.find(memoryview(frame)) is None
    assert logs == []
    assert all(client.send(request) for request in (produce(b"batch"), end_txn()))


# Memory


@pytest.mark.parametrize("version", [8, 12])
def test_the_memory_of_frames_is_not_kept(client: Client, version: int) -> None:
    """`send` checks it."""
    several = produce(b"a", b"b", version=version)
    for frame in (
        several,
        produce(b"cc", b"dd", version=version),
        produce(b"a", None, version=version),
        produce(None, b"b", version=version),
        produce(b"cc", b"dd", first=1, version=version),
        with_another_second_partition(several),
        several + b"behind",
        several,
    ):
        for _ in range(3):
            client.send(frame)
    assert len(client.cache) == 4


def with_another_second_partition(frame: bytes) -> bytes:
    """A Produce of two batches, for the partitions 0 and 1, becomes one for 0 and 5."""
    start = frame.rindex(b"\0\0\0\1", 0, frame.rindex(b"b") - 1)
    start = frame.index(b"\0\0\0\1", frame.rindex(b"a"), start + 4)
    return frame[:start] + b"\0\0\0\5" + frame[start + 4 :]


def test_the_cache_does_not_keep_the_message_objects_of_the_records(client: Client) -> None:
    frame = bytearray(produce(b"batch" * 100))
    sent = Decoded(memoryview(frame))
    client.cache.remember(memoryview(frame), sent.body_position, sent.request, sent.route, sent.client_id)
    found = client.cache.find(memoryview(frame))
    assert found is not None
    (partition,) = found[0].request.topic_data[0].partition_data
    assert bytes(partition.records) == b"batch" * 100
    found[0].drop_records()
    assert partition.records == b""
    del sent, found, partition
    frame.clear()


# Failures


def test_a_cache_that_fails_is_emptied_and_decodes_instead(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for frame in (produce(b"batch"), end_txn()):
        client.send(frame)

    def fail(*_: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(request_cache, "_set_records", fail)
        assert client.cache.find(memoryview(produce(b"batch"))) is None
    assert [line["event"] for line in logs] == ["request_cache_failed"]
    assert len(client.cache) == 0
    assert [client.send(produce(b"batch")) for _ in range(2)] == [False, True]
