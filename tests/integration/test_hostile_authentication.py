"""Strangers before a listener that lets nobody in without a password: what they send has no effect, tells them nothing,
and does not disturb those who are in.
"""

from __future__ import annotations

import gzip
import itertools
import random
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import scramp

from fencepost.broker.requests.api import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.differences.connection import CLIENT_ID, Connection, ConnectionClosedError, Login
from tests.differences.secured.authentication import ITERATIONS, NUMBER_OF_SHA_256, SALT, SCRAM, salted
from tests.differences.secured.sides import ADMIN, ALICE
from tests.support.broker_process import BrokerProcess
from tests.support.hostile_requests import HostileRequests
from tests.support.secured_process import connected, secured_process, state_of

SHORT_TIMEOUT_MS: Final = 1_500
"""For strangers who are silent. A user on a busy machine may need longer, so users meet the other broker."""
TIMEOUT_MS: Final = 60_000
LARGEST_FRAME_BYTES: Final = 524_288
SEED: Final = 11_091
PATIENCE_S: Final = 60.0
SLOWEST_WITNESS_S: Final = TIMEOUT_MS / 1000 / 2
"""A user who had to wait for strangers would wait until their time is over; the rest is for a busy machine."""
QUICK_TRIES: Final = 800
LONG_TRIES: Final = 10_000

HANDSHAKE: Final = bytes(request_frame(1, CLIENT_ID, SaslHandshakeRequest("PLAIN"), 1))
RAW_HANDSHAKE: Final = bytes(request_frame(1, CLIENT_ID, SaslHandshakeRequest("PLAIN"), 0))
SCRAM_HANDSHAKE: Final = bytes(request_frame(1, CLIENT_ID, SaslHandshakeRequest(SCRAM), 1))
API_VERSIONS: Final = bytes(request_frame(1, CLIENT_ID, ApiVersionsRequest("x", "1"), 3))
BEGINNINGS: Final = {
    "at first": b"",
    "after ApiVersions": API_VERSIONS,
    "in place of a token": HANDSHAKE,
    "in place of a raw token": RAW_HANDSHAKE,
    "in place of SCRAM's first": SCRAM_HANDSHAKE,
}


def unharmed(data: Path, timeout_ms: int) -> Iterator[BrokerProcess]:
    """A broker that strangers do no harm. timeout_ms: within which clients have to authenticate."""
    with secured_process(data, {"fencepost.authentication.timeout.ms": str(timeout_ms)}) as process:
        yield process
        assert process.is_running, process.output
        assert "[error" not in process.output, process.output
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from unharmed(tmp_path_factory.mktemp("strangers") / "data", TIMEOUT_MS)


@pytest.fixture(scope="module")
def impatient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from unharmed(tmp_path_factory.mktemp("silent-strangers") / "data", SHORT_TIMEOUT_MS)


@pytest.fixture
def unchanged(broker: BrokerProcess) -> Iterator[None]:
    """What a test does has no effect that the super user sees."""
    before = state_of(broker)
    yield
    assert state_of(broker) == before


def token(content: bytes, correlation_id: int = 2) -> bytes:
    return bytes(request_frame(correlation_id, CLIENT_ID, SaslAuthenticateRequest(content), 2))


def create_topic(name: str) -> bytes:
    return bytes(request_frame(3, CLIENT_ID, CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5_000), 7))


def replies(connection: Connection) -> list[bytes]:
    """All frames until the connection is closed. Raises TimeoutError where it stays open."""
    found = []
    try:
        while True:
            found.append(connection.receive_frame(PATIENCE_S))
    except ConnectionClosedError:
        return found


def error_of(reply: bytes) -> int:
    """Of SaslAuthenticate 2, behind its correlation id and no tags."""
    (code,) = struct.unpack_from(">h", reply, 5)
    return int(code)


# Time


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_silent_client_is_disconnected_when_its_time_is_over(impatient_broker: BrokerProcess, beginning: str) -> None:
    began_s = time.monotonic()
    with connected(impatient_broker) as connection:
        connection.send_bytes(BEGINNINGS[beginning])
        replies(connection)
        assert time.monotonic() - began_s > SHORT_TIMEOUT_MS / 1000 * 0.9


def trickle(connection: Connection, until_s: float) -> None:
    """Send a large frame byte by byte. Raises ConnectionClosedError when the other end has closed."""
    for byte in itertools.chain(struct.pack(">i", LARGEST_FRAME_BYTES), itertools.repeat(0)):
        connection.send_bytes(bytes([byte]))
        if connection.has_reply(0.05):
            connection.receive_frame()
        assert time.monotonic() < until_s


def test_a_client_that_trickles_bytes_has_no_more_time_than_others(impatient_broker: BrokerProcess) -> None:
    began_s = time.monotonic()
    with connected(impatient_broker) as connection:
        with pytest.raises(ConnectionClosedError):
            trickle(connection, began_s + PATIENCE_S)
        assert time.monotonic() - began_s > SHORT_TIMEOUT_MS / 1000 * 0.9


def test_many_silent_clients_do_not_keep_others_out(broker: BrokerProcess) -> None:
    silent = [connected(broker) for _ in range(200)]
    for connection in silent[::2]:
        connection.send_bytes(HANDSHAKE + token(b"")[:11])
    began_s = time.monotonic()
    with connected(broker, ALICE):
        assert time.monotonic() - began_s < SLOWEST_WITNESS_S
    for connection in silent:
        connection.close()


def test_many_silent_clients_are_all_disconnected(impatient_broker: BrokerProcess) -> None:
    silent = [connected(impatient_broker) for _ in range(200)]
    for connection in silent[::2]:
        connection.send_bytes(HANDSHAKE + token(b"")[:11])
    for connection in silent:
        replies(connection)
        connection.close()


# Tokens and what follows them


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(ALICE.token),
        gzip.compress(b"\0" * 100_000_000)[:LARGEST_FRAME_BYTES - 100],
        b"\0alice\0" + b"x" * (LARGEST_FRAME_BYTES - 100),
        b"\0" + b"x" * (LARGEST_FRAME_BYTES - 100) + b"\0x",
        "\0aliceé\0alice-secret".encode(),
        b"\0alice\0alice-secret\n",
        b" \0alice\0alice-secret",
    ],
    ids=["gzip", "a bomb", "a long password", "a long user", "combining", "a line end", "a blank identity"],
)  # fmt: skip
def test_tokens_that_only_resemble_the_right_one_are_refused(broker: BrokerProcess, content: bytes) -> None:
    with connected(broker) as connection:
        connection.send_bytes(HANDSHAKE + token(content) + create_topic("stowaway"))
        _, refused = replies(connection)
        assert error_of(refused) == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("size", [LARGEST_FRAME_BYTES + 1, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_frames_beyond_the_limit_end_the_connection_before_they_arrive(
    broker: BrokerProcess, beginning: str, size: int
) -> None:
    with connected(broker) as connection:
        connection.send_bytes(BEGINNINGS[beginning])
        connection.send_bytes(struct.pack(">i", size))
        began_s = time.monotonic()
        replies(connection)
        assert time.monotonic() - began_s < TIMEOUT_MS / 1000 * 0.9


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "ahead",
    [b"", API_VERSIONS, HANDSHAKE, RAW_HANDSHAKE, HANDSHAKE + token(b"\0alice\0wrong"), SCRAM_HANDSHAKE],
    ids=["nothing", "ApiVersions", "a handshake", "a raw handshake", "a wrong token", "a handshake of SCRAM"],
)
def test_a_request_that_is_sent_along_has_no_effect_without_a_right_token(broker: BrokerProcess, ahead: bytes) -> None:
    with connected(broker) as connection:
        connection.send_bytes(ahead + create_topic("stowaway") * 5)
        replies(connection)


def test_requests_behind_a_right_token_are_answered_in_order(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        behind = b"".join(request_frame(number, CLIENT_ID, MetadataRequest([]), 9) for number in range(3, 13))
        connection.send_bytes(API_VERSIONS + HANDSHAKE + token(ALICE.token) + behind)
        found = [struct.unpack_from(">i", connection.receive_frame())[0] for _ in range(13)]
        assert found == [1, 1, 2, *range(3, 13)]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_request_of_any_api_is_served(broker: BrokerProcess, beginning: str) -> None:
    """But ApiVersions, and what authentication consists of."""
    hostile = HostileRequests(SEED, [])
    for api in APIS.values():
        if api.name in ("ApiVersions", "SaslHandshake", "SaslAuthenticate"):
            continue
        for version in (api.minimum_version, api.maximum_version):
            with connected(broker) as connection:
                connection.send_bytes(BEGINNINGS[beginning] + hostile.request(api.request, version).content)
                replies(connection)


# Anything at all


def hostile_bytes(chance: random.Random, hostile: HostileRequests) -> bytes:
    """Something that a stranger may send next."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.randbytes(chance.choice([1, 3, 4, 8, 40, 3_000]))
    if kind == 1:
        content = chance.randbytes(chance.choice([0, 1, 4, 8, 40, 3_000]))
        return struct.pack(">i", len(content)) + content
    if kind == 2:
        api = chance.choice(list(APIS.values()))
        return hostile.request(api.request, chance.randint(api.minimum_version, api.maximum_version)).content
    if kind == 3:
        damaged = bytearray(chance.choice([*BEGINNINGS.values(), token(b"\0alice\0wrong")]) or b"\0\0\0\1x")
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        return bytes(damaged)
    if kind == 4:
        parts = [b"alice", b"", b"mallory", b"wrong", chance.randbytes(5), b"\0", b"n,,n=alice,r=x", b"p=", b"c=biws"]
        return token(chance.choice([b"\0", b",", b""]).join(chance.choices(parts, k=chance.randint(0, 4))))
    if kind == 5:
        content = b"\0".join(chance.choices([b"alice", b"", b"wrong", b"x" * 600], k=chance.randint(0, 4)))
        return struct.pack(">i", len(content)) + content
    return chance.choice(list(BEGINNINGS.values()))


def fuzz(broker: BrokerProcess, seed: int, *, strangers_count: int) -> None:
    """Strangers, one after another, each with a few things to say; a user who is in must not notice."""
    chance, hostile = random.Random(seed), HostileRequests(seed, [])
    with connected(broker, ALICE) as witness:
        for number in range(strangers_count):
            connection = connected(broker)
            try:
                for _ in range(chance.randint(1, 5)):
                    connection.send_bytes(hostile_bytes(chance, hostile))
                    if chance.random() < 0.3 and connection.has_reply(0.005):
                        connection.receive_frame()
            except (ConnectionClosedError, TimeoutError):
                pass
            finally:
                connection.close()
            if number % 10 == 0:
                began_s = time.monotonic()
                witness.send(MetadataRequest([]), 12)
                witness.receive(MetadataRequest([]).api_key, 12)  # type: ignore[attr-defined]  # set by @message
                assert time.monotonic() - began_s < SLOWEST_WITNESS_S


@pytest.mark.usefixtures("unchanged")
def test_strangers_who_say_anything_at_all_have_no_effect(broker: BrokerProcess) -> None:
    fuzz(broker, SEED, strangers_count=400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_many_strangers_who_say_anything_at_all_have_no_effect(broker: BrokerProcess, seed: int) -> None:
    before = state_of(broker)
    fuzz(broker, seed, strangers_count=5_000)
    assert state_of(broker) == before


# What strangers may learn from the time that a refusal takes


@pytest.fixture(scope="module")
def scram_user(broker: BrokerProcess) -> str:
    with connected(broker, ADMIN) as connection:
        upsertion = ScramCredentialUpsertion("dave", NUMBER_OF_SHA_256, ITERATIONS, SALT, salted("dave-secret"))
        connection.send(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        connection.receive(AlterUserScramCredentialsRequest().api_key, 0)  # type: ignore[attr-defined]  # set by @message
    return "dave"


def time_of_plain(broker: BrokerProcess, user: str) -> float:
    """Seconds from a wrong password to its refusal."""
    with connected(broker) as connection:
        connection.send_bytes(HANDSHAKE)
        connection.receive_frame()
        sent = token(Login(user, "wrong-secret").token)
        began_s = time.perf_counter()
        connection.send_bytes(sent)
        connection.receive_frame()
        return time.perf_counter() - began_s


def time_of_scram(broker: BrokerProcess, user: str) -> float:
    """Seconds of a whole exchange with a wrong password, without what the client takes for it."""
    client = scramp.ScramClient([SCRAM], user, "wrong-secret")
    with connected(broker) as connection:
        connection.send_bytes(SCRAM_HANDSHAKE)
        connection.receive_frame()
        sent = token(client.get_client_first().encode())
        began_s = time.perf_counter()
        connection.send_bytes(sent)
        reply = connection.receive_frame()
        taken_s = time.perf_counter() - began_s
        at = reply.index(b"r=")
        first = reply[at : reply.index(b",i=", at) + 3]
        client.set_server_first(first.decode() + reply[at + len(first) :].split(b"\0")[0].decode())
        sent = token(client.get_client_final().encode())
        began_s = time.perf_counter()
        connection.send_bytes(sent)
        connection.receive_frame()
        return taken_s + time.perf_counter() - began_s


def compare_times(time_of: Callable[[str], float], known: str, unknown: str, tries: int) -> tuple[float, float]:
    """Ratio of the medians, and Welch's t of the middle halves; both users take turns by chance."""
    chance = random.Random(SEED)
    times: dict[str, list[float]] = {known: [], unknown: []}
    for _ in range(tries):
        for user in chance.sample([known, unknown], 2):
            times[user].append(time_of(user))
    middles = []
    for user in (known, unknown):
        ordered = sorted(times[user])
        middles.append(ordered[: len(ordered) * 3 // 4])
    one, other = middles
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    t = (statistics.fmean(one) - statistics.fmean(other)) / spread**0.5
    return statistics.median(times[known]) / statistics.median(times[unknown]), t


MECHANISMS: Final[dict[str, tuple[Callable[[BrokerProcess, str], float], str, str]]] = {
    "PLAIN": (time_of_plain, "alice", "malle"),
    "SCRAM": (time_of_scram, "dave", "emma"),
}


@pytest.mark.usefixtures("scram_user")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_take_the_same_time(broker: BrokerProcess, mechanism: str) -> None:
    time_of, known, unknown = MECHANISMS[mechanism]
    ratio, t = compare_times(lambda user: time_of(broker, user), known, unknown, QUICK_TRIES // 2)
    assert 0.8 < ratio < 1.25, (ratio, t)


@pytest.mark.long
@pytest.mark.usefixtures("scram_user")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_statistics_tell_a_wrong_password_from_an_unknown_user(broker: BrokerProcess, mechanism: str) -> None:
    time_of, known, unknown = MECHANISMS[mechanism]
    ratio, t = compare_times(lambda user: time_of(broker, user), known, unknown, LONG_TRIES)
    assert abs(t) < 4.0, (ratio, t)


# The limiter


def test_failures_take_longer_and_longer_but_not_for_those_who_know_their_password(tmp_path: Path) -> None:
    settings = {"connection.failed.authentication.delay.ms": "20"}
    with secured_process(tmp_path / "data", settings) as process:
        taken_s = []
        for _ in range(15):
            with connected(process) as connection:
                began_s = time.monotonic()
                connection.send_bytes(HANDSHAKE + token(b"\0alice\0wrong"))
                replies(connection)
                taken_s.append(time.monotonic() - began_s)
        assert min(taken_s) >= 0.018  # of 20 ms: the event loop's clock counts in milliseconds, and may be one behind
        # What other programs take of the machine makes none of them shorter, and hardly all of them longer.
        assert min(taken_s[:10]) < 0.3 < taken_s[-1]
        assert min(log_in_s(process) for _ in range(10)) < 0.3


def log_in_s(process: BrokerProcess) -> float:
    """Seconds until a user who knows her password is in."""
    began_s = time.monotonic()
    with connected(process, ALICE):
        return time.monotonic() - began_s


def test_nobody_finds_a_password_in_the_log(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.send_bytes(HANDSHAKE + token(b"\0alice\0almost-the-secret"))
        replies(connection)
    for secret in ("almost-the-secret", "alice-secret", "admin-secret"):
        assert secret not in broker.output
