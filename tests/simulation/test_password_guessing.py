"""Passwords that are tried by the thousand, in virtual time, while somebody turns the broker's clock."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Sequence
from typing import Final

import pytest

from fencepost.broker.security.sasl.failure_delays import LONGEST_DELAY_MS, MAXIMUM_ADDRESSES, FailureDelays
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.simulation.broker import SimulatedBroker
from tests.simulation.loop import run
from tests.simulation.world import World

FIRST_DELAY_MS: Final = 100
RIGHT: Final = b"\0alice\0alice-secret"
WRONG: Final = b"\0alice\0guess-%d"
SETTINGS: Final = {
    "listeners": "SASL_PLAINTEXT://broker-1:9092",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": ('org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'),
    "connection.failed.authentication.delay.ms": str(FIRST_DELAY_MS),
}
AT_ONCE_S: Final = 0.05
"""More than the network takes."""
ERROR_POSITION: Final = 5  # behind the correlation id and no tags
A_DAY_MS: Final = 86_400_000
JUMPS_MS: Final = (-A_DAY_MS, -3_600_000, -5_000, 5_000, 59_000)
"""None of them lets a minute pass: those would make the broker forget failures, as they should."""


class _Talk(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.is_answered = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.frames()) >= 2:
            self.is_answered.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_answered.set()

    def frames(self) -> list[bytes]:
        found, position = [], 0
        while position + 4 <= len(self.received):
            (length,) = struct.unpack_from(">i", self.received, position)
            if position + 4 + length > len(self.received):
                break
            found.append(bytes(self.received[position + 4 : position + 4 + length]))
            position += 4 + length
        return found


async def log_in(world: World, broker: SimulatedBroker, host: str, token: bytes) -> tuple[int, float]:
    """The error of the answer, and the virtual time that it took."""
    began_s = world.loop.time()
    transport, talk = await world.network.connector(host)(_Talk, broker.host, broker.port)
    assert isinstance(talk, _Talk)
    transport.write(request_frame(1, "client", SaslHandshakeRequest("PLAIN"), 1))
    transport.write(request_frame(2, "client", SaslAuthenticateRequest(token), 2))
    await talk.is_answered.wait()
    transport.close()
    _, answer = talk.frames()
    return struct.unpack_from(">h", answer, ERROR_POSITION)[0], world.loop.time() - began_s


async def _guess(tries: int, hosts: Sequence[str], at_once: int) -> float:
    """Guess wrong, from these hosts in turn, some at the same time. Returns the virtual time that it took."""
    world = World(tries)
    broker = world.add_broker(settings=SETTINGS)
    await broker.start()
    chance = random.Random(tries)
    for number in range(0, tries, at_once):
        guesses = [
            log_in(world, broker, hosts[guess % len(hosts)], WRONG % guess) for guess in range(number, number + at_once)
        ]
        for error, taken_s in await asyncio.gather(*guesses):
            assert error == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert FIRST_DELAY_MS / 1000 <= taken_s <= LONGEST_DELAY_MS / 1000 + AT_ONCE_S
        if chance.random() < 0.2:
            broker.clock.skew_ms += chance.choice(JUMPS_MS)
        if chance.random() < 0.1:
            for host in ("elsewhere", hosts[0]):
                error, taken_s = await log_in(world, broker, host, RIGHT)
                assert error == ErrorCode.NONE
                assert taken_s < AT_ONCE_S
    taken_s = world.loop.time()
    await broker.stop()
    return taken_s


def longest_possible_s(tries: int) -> float:
    return tries * (LONGEST_DELAY_MS / 1000 + 2 * AT_ONCE_S)


@pytest.mark.parametrize("tries", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_one_address_guesses_slowly_whatever_happens_to_the_clock(tries: int) -> None:
    taken_s = run(_guess(tries, ["guesser"], 1))
    assert longest_possible_s(tries) > taken_s > tries * 0.5


@pytest.mark.parametrize("tries", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_guesses_at_the_same_time_are_as_slow_each(tries: int) -> None:
    taken_s = run(_guess(tries, ["guesser"], 20))
    assert taken_s > tries / 20 * 4.0


@pytest.mark.parametrize("tries", [400, pytest.param(2 * MAXIMUM_ADDRESSES, marks=pytest.mark.long)])
def test_guesses_from_many_addresses_have_the_usual_delay_each(tries: int) -> None:
    taken_s = run(_guess(tries, [f"guesser-{number}" for number in range(tries)], 20))
    assert taken_s < tries / 20 * (FIRST_DELAY_MS / 1000 + AT_ONCE_S) * 3


@pytest.mark.parametrize("seed", range(20))
def test_no_turn_of_the_clock_makes_a_delay_shorter_than_the_first_or_longer_than_the_last(seed: int) -> None:
    chance, delays, now_ms = random.Random(seed), FailureDelays(), A_DAY_MS
    for _ in range(10_000):
        now_ms += chance.choice([*JUMPS_MS, 0, 1, 100, A_DAY_MS])
        delay_ms = delays.failed(chance.choice(["192.0.2.1", "192.0.2.2"]), FIRST_DELAY_MS, now_ms)
        assert FIRST_DELAY_MS <= delay_ms <= LONGEST_DELAY_MS
