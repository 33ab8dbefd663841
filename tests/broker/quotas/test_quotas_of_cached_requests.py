"""Quotas of clients whose requests repeat: charged as for decoded ones; those of others cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.quotas.client_quotas import Client as QuotaClient
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.quotas.entities import QuotaKey, entity_of
from fencepost.broker.quotas.rates import SampledRate
from fencepost.protocol.framing import LENGTH_BYTES
from fencepost.protocol.messages.produce import ProduceResponse
from fencepost.protocol.schema import decode
from tests.broker.produce.test_produce_runs import DURABLE, Client, batch, connected, frames_with, offsets_of
from tests.support.equal_brokers import equal_brokers
from tests.support.equal_requests import one_of_each
from tests.support.fetch_frames import fetch_frame, records_in, response_in, values_in
from tests.support.known_requests import FrameClient
from tests.support.produce_frames import BY_NAME, produce_frame

ALL_QUOTAS: dict[str, float] = {
    "producer_byte_rate": 0.001,
    "consumer_byte_rate": 0.001,
    "request_percentage": 0.001,
}
PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
BUSY = QuotaKey.REQUEST_PERCENTAGE
TURNS_COUNT = 20


@pytest.fixture
def charges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, float]]:
    """Every charge: quota, client and amount."""
    noted: list[tuple[str, str, float]] = []
    charge = ClientQuotas.charge

    def noting(quotas: ClientQuotas, key: QuotaKey, client: QuotaClient, amount: float) -> int:
        noted.append((key, client[1], amount))
        return charge(quotas, key, client, amount)

    monkeypatch.setattr(ClientQuotas, "charge", noting)
    return noted


@pytest.fixture
def steady_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock of the processor's time takes 40 ms."""
    looks = count(1)
    monkeypatch.setattr(
        "fencepost.broker.quotas.client_quotas.time", SimpleNamespace(perf_counter_ns=lambda: next(looks) * 40_000_000)
    )


async def set_quota(client: Client, values: Mapping[str, float], client_id: str = "client") -> None:
    await client.broker.services.client_quotas.change(entity_of([("client-id", client_id)]), values)


def throttles_of(replies: list[bytes]) -> list[int]:
    return [decode(ProduceResponse, reply, BY_NAME, LENGTH_BYTES + 5).throttle_time_ms for reply in replies]


def throttle_for(produced_bytes: int, rate: float) -> int:
    """For how many milliseconds a client is throttled that has produced so much at once."""
    sampled = SampledRate(window_ms=1_000, window_count=11)
    sampled.record(produced_bytes, 0)
    return sampled.throttle_ms(rate, 0)


# Of others


async def test_a_quota_of_another_client_leaves_requests_cached_and_unmetered(
    tmp_path: Path, charges: list[tuple[str, str, float]]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=2**63 - 1) as brokers:
        requests = await one_of_each(brokers)
        await brokers.set_quotas("another", **ALL_QUOTAS)
        assert brokers.warm.node.services.client_quotas.is_active
        for _ in range(5):
            for request, version, _, _ in requests:
                response = await brokers.send(request, version)
                assert response is None or response.throttle_time_ms == 0
                await brokers.settle()
        assert brokers.known_count >= 4 * len(requests)
        assert charges == []
        assert brokers.warm.throttled_s == []


async def test_a_quota_of_another_client_leaves_runs_together_and_unmetered(
    tmp_path: Path, charges: list[tuple[str, str, float]]
) -> None:
    async with connected(tmp_path) as client:
        await set_quota(client, ALL_QUOTAS, "another")
        await client.burst(frames_with([batch()] * 2))
        replies = await client.burst(frames_with([batch()] * 16))
        assert client.dispatcher.run_counts == [16]
        assert set(throttles_of(replies)) == {0}
        assert charges == []


async def test_a_quota_that_is_set_and_removed_counts_from_the_next_request_on(
    tmp_path: Path, charges: list[tuple[str, str, float]]
) -> None:
    async with connected(tmp_path) as client:
        frame = produce_frame(batch())
        one = FrameClient(client.broker.services, quotas=client.broker.services.client_quotas)
        expected: list[float] = []
        for client_id in ("client", None):
            for value in (None, 1e9, None):
                await client.broker.services.client_quotas.change(
                    entity_of([("client-id", client_id)]), {PRODUCED: value}
                )
                for _ in range(2):
                    assert isinstance(await one.send(frame), bytes)
                    expected += [len(frame) - LENGTH_BYTES] if value is not None else []
                    assert [amount for _, _, amount in charges] == expected
        assert one.known_count == 11


# Of its own


@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_cached_request_is_charged_as_a_decoded_one(
    tmp_path: Path, charges: list[tuple[str, str, float]], acks: int
) -> None:
    async with connected(tmp_path) as client:
        quotas = client.broker.services.client_quotas
        await set_quota(client, {PRODUCED: 100.0})
        frame = produce_frame(batch(bytes(200)), acks=acks)
        one = FrameClient(client.broker.services, quotas=quotas)
        replies = [await one.send(frame) for _ in range(4)]
        assert one.known_count == 3
        assert charges == [(PRODUCED, "client", len(frame) - LENGTH_BYTES)] * 4
        expected = [throttle_for((number + 1) * (len(frame) - LENGTH_BYTES), 100.0) for number in range(4)]
        assert expected[0] > 0
        assert one.connection.muted_s == [throttle_ms / 1_000 for throttle_ms in expected]
        if acks:
            assert throttles_of([reply for reply in replies if isinstance(reply, bytes)]) == expected


async def test_replies_are_not_throttled_any_more_when_the_quota_is_gone(tmp_path: Path) -> None:
    """Those of cached requests are made after the first one's, which was throttled."""
    async with connected(tmp_path) as client:
        quotas = client.broker.services.client_quotas
        one = FrameClient(client.broker.services, quotas=quotas)
        entity = entity_of([("client-id", "client")])
        throttles = []
        for value in (1.0, None):
            await quotas.change(entity, {PRODUCED: value})
            replies = [await one.send(produce_frame(batch())) for _ in range(3)]
            throttles.append(throttles_of([reply for reply in replies if isinstance(reply, bytes)]))
        assert min(throttles[0]) > 0
        assert throttles[1] == [0, 0, 0]
        assert one.known_count == 5


async def test_a_run_is_charged_as_its_requests_would_be_one_by_one(
    tmp_path: Path, charges: list[tuple[str, str, float]]
) -> None:
    async with connected(tmp_path) as client:
        await set_quota(client, {PRODUCED: 1e9})
        frames = frames_with([batch()] * 16)
        await client.burst(frames[:2])
        charges.clear()
        await client.one_by_one(frames)
        one_by_one = sum(amount for _, _, amount in charges)
        assert one_by_one == sum(len(frame) - LENGTH_BYTES for frame in frames)
        charges.clear()
        replies = await client.burst(frames)
        assert client.dispatcher.run_counts == [16]
        assert [key for key, _, _ in charges] == [PRODUCED]
        assert sum(amount for _, _, amount in charges) == one_by_one
        assert set(throttles_of(replies)) == {0}


@pytest.mark.parametrize("settings", [{}, DURABLE], ids=["page cache", "durable"])
async def test_a_run_beyond_a_quota_is_throttled_in_its_replies_and_mutes_the_connection(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with connected(tmp_path, **settings) as client:
        frames = frames_with([batch()] * 16)
        await client.burst(frames[:2])
        produced_bytes = sum(len(frame) - LENGTH_BYTES for frame in frames)
        rate = produced_bytes / 10.1
        await set_quota(client, {PRODUCED: rate})
        loop = asyncio.get_running_loop()
        time_s = loop.time
        started_s = time_s()
        with pytest.MonkeyPatch.context() as patch:
            # However busy the machine is, the pause is not over until it is looked at.
            patch.setattr(loop, "time", lambda: min(time_s(), started_s + 0.03))
            replies = await client.burst(frames)
            assert client.dispatcher.run_counts == [16]
            (throttle_ms,) = set(throttles_of(replies))
            assert throttle_ms == throttle_for(produced_bytes, rate) > 50
            client.arrive(produce_frame(batch(), correlation_id=99))
            for _ in range(TURNS_COUNT):
                await asyncio.sleep(0)
            assert client.transport.written == b""
            assert client.broker.log("orders").log_end_offset == 18 * 8, "what arrives meanwhile is not begun"
        client.broker.clock.time_ms += 20_000
        assert offsets_of(await client.replies(1)) == [18 * 8]
        assert loop.time() - started_s >= throttle_ms / 1_000 - 0.01


async def test_no_more_than_one_run_is_begun_beyond_a_quota(tmp_path: Path) -> None:
    async with connected(tmp_path, fencepost_connection_max_in_flight=4) as client:
        frames = frames_with([batch()] * 12)
        await client.burst(frames[:2])
        await set_quota(client, {PRODUCED: len(frames[0]) / 100})
        client.arrive(*frames)
        for _ in range(TURNS_COUNT):
            await asyncio.sleep(0)
        assert client.dispatcher.run_counts == [4]
        assert client.broker.log("orders").log_end_offset == 6 * 8
        assert len(await client.replies(4)) == 4


@pytest.mark.usefixtures("steady_time")
async def test_a_run_is_charged_for_its_time(tmp_path: Path, charges: list[tuple[str, str, float]]) -> None:
    async with connected(tmp_path) as client:
        await client.burst(frames_with([batch()] * 2))
        await set_quota(client, {BUSY: 1e9})
        replies = await client.burst(frames_with([batch()] * 16))
        assert client.dispatcher.run_counts == [16]
        assert set(throttles_of(replies)) == {0}
        busy = [amount for key, _, amount in charges if key == BUSY]
        assert busy
        assert min(busy) >= 4.0, "percent of a second: each takes a look or more"


async def test_the_records_of_a_cached_fetch_are_charged(tmp_path: Path, charges: list[tuple[str, str, float]]) -> None:
    async with connected(tmp_path) as client:
        await client.burst(frames_with([batch(b"v" * 1_000)] * 2))
        await set_quota(client, {QuotaKey.CONSUMER_BYTE_RATE: 1e9})
        one = FrameClient(client.broker.services, quotas=client.broker.services.client_quotas)
        sizes = []
        for offset in (0, 8, 16, 0):
            reply = await one.send(fetch_frame(offset))
            assert len(values_in(reply)) == 16 - offset
            sizes.append(len(records_in(reply)))
        assert one.known_count == 3
        assert [amount for _, _, amount in charges] == sizes


async def test_a_cached_fetch_beyond_its_quota_comes_back_empty_and_gets_its_records_later(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await client.burst(frames_with([batch(b"v" * 200)] * 2))
        await set_quota(client, {QuotaKey.CONSUMER_BYTE_RATE: 50.0})
        one = FrameClient(client.broker.services, quotas=client.broker.services.client_quotas)
        responses = [response_in(await one.send(fetch_frame(0))) for _ in range(3)]
        throttles_s = [response.throttle_time_ms / 1_000 for response in responses]
        assert throttles_s[0] > 0
        assert one.connection.muted_s == throttles_s
        assert [len(response.responses) for response in responses] == [1, 0, 0]
        client.broker.clock.time_ms += 20_000
        again = response_in(await one.send(fetch_frame(0)))
        assert again.responses == responses[0].responses
        assert one.known_count == 3
