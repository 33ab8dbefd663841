"""The authentication of a connection of a SASL listener, as its clients meet it; Kafka 4.4 answered the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.network import authentication
from fencepost.broker.network.authentication import Authentication, AuthenticationLimits, ListenerAuthentication
from fencepost.broker.network.authentication_counts import AuthenticationCounts
from fencepost.broker.requests.api import APIS, RequestContext
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.security.sasl.authentication_state import AuthenticationState
from fencepost.broker.security.sasl.exchange import Challenge, Found, Identified, Refused
from fencepost.broker.security.sasl.failure_delays import FailureDelays
from fencepost.broker.security.sasl.plain import ClearPasswords, PlainExchange
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame, response_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.protocol.schema import decode
from tests.broker.network.test_connection import Client, Limits
from tests.broker.supervision.planting import logged, plants, raising, unforeseen
from tests.simulation import loop as virtual_time
from tests.support.captured_events import capture_logs

ALICE, BOB, WRONG, NOBODY = b"\0alice\0alice-1", b"\0bob\0bob-1", b"\0alice\0wrong", b"\0nobody\0alice-1"
INVALID = "Authentication failed: Invalid username or password"
DELAY_S = 0.3
PASSWORDS = ClearPasswords({"alice": "alice-1", "bob": "bob-1", "c": "d"}, b"key")
CLOSED = "closed"


@dataclass
class SaslLimits:
    timeout_ms: int = 10_000
    max_receive_bytes: int = 524_288
    failure_delay_ms: int = 300
    reauth_ms: int = 0

    def max_reauth_ms(self, mechanism: str) -> int:
        return self.reauth_ms


class Twice:
    """A mechanism with two tokens, the first of which is checked elsewhere for a second."""

    def __init__(self) -> None:
        self._has_first = False

    def evaluate(self, token: bytes) -> Found | Awaitable[Found]:
        if self._has_first:
            return Identified("alice", b"done") if token == b"second" else Refused("no", "wrong token")
        self._has_first = True
        return self._slow(token)

    async def _slow(self, token: bytes) -> Found:
        await asyncio.sleep(1)
        if token == b"expiring":
            return Identified("alice", b"", virtual_time.START_MS + 31_000)
        return Challenge(b"go on") if token == b"first" else Refused(None, "wrong token")


class VirtualClock:
    def now_ms(self) -> int:
        return virtual_time.START_MS + round(asyncio.get_running_loop().time() * 1000)


def listener(limits: AuthenticationLimits) -> ListenerAuthentication:
    loop = asyncio.get_running_loop()
    return ListenerAuthentication(
        "SASL_PLAINTEXT",
        {"PLAIN": lambda _: PlainExchange(PASSWORDS), "TWICE": lambda _: Twice()},
        limits,
        FailureDelays(),
        VirtualClock(),
        loop,
        LogLimit(loop.time, lambda count, whose: None),
    )


@dataclass
class SaslClient:
    """A client of a connection with SASL; what is served is answered with `served`."""

    limits: SaslLimits = field(default_factory=SaslLimits)
    socket_limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.client = Client(limits=self.socket_limits, sasl=listener(self.limits), answer=self._serve)
        self.connection = self.client.connection
        assert isinstance(self.connection.authentication, Authentication)
        self.authentication = self.connection.authentication
        self._read = 0

    def _serve(self, frame: memoryview) -> Any:
        """The dispatcher of clients that are known: SaslHandshake has its handler."""
        if bytes(frame[:2]) == b"\0\x11":
            version = frame[3]
            request = decode(SaslHandshakeRequest, frame, version, 14)
            context = RequestContext(None, version, 1, "a", self.connection)  # type: ignore[arg-type]
            response = APIS[17].handler(context, request)
            if not isinstance(response, Coroutine):
                return response_frame(1, response, version)

            async def later() -> Any:
                return response_frame(1, await response, version)

            return asyncio.get_running_loop().create_task(later())
        return [b"\0\0\0\x06served"]

    @property
    def state(self) -> AuthenticationState:
        return self.authentication.state

    def is_closed(self) -> bool:
        return self.client.transport.ended is not None

    async def call(self, request: Any, version: int) -> Any:
        """The reply, after the time that it takes: `closed`, `served` or the response."""
        self.client.send(bytes(request_frame(1, "abcd", request, version))[4:])
        answer = await self.answer()
        if not isinstance(answer, bytes) or answer == b"served":
            return answer
        position = 5 if response_header_version(request.api_key, version) else 4
        return decode(APIS[request.api_key].response, answer, version, position)

    async def raw(self, token: bytes) -> Any:
        self.client.send(token)
        return await self.answer()

    async def answer(self) -> Any:
        """The next frame; `closed` if the connection ends without one, None if nothing happens."""
        for _ in range(100):
            received = self.client.received[self._read :]
            if received:
                end = 4 + int.from_bytes(received[:4], "big")
                self._read += end
                return bytes(received[4:end])
            if self.is_closed():
                return CLOSED
            await asyncio.sleep(0.05)
        return None

    async def api_versions(self, version: int = 3, software: str = "test") -> Any:
        return await self.call(ApiVersionsRequest(software, "1"), version)

    async def metadata(self) -> Any:
        return await self.call(MetadataRequest(), 9)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.call(SaslHandshakeRequest(mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.call(SaslAuthenticateRequest(token), version)

    async def log_in(self, token: bytes = ALICE, mechanism: str = "PLAIN") -> SaslAuthenticateResponse:
        handshake = await self.handshake(mechanism)
        assert handshake.error_code == 0, handshake
        reply: SaslAuthenticateResponse = await self.token(token)
        return reply


Story = Callable[..., Coroutine[Any, Any, None]]


def in_virtual_time(story: Story) -> Callable[..., None]:
    @wraps(story)
    def run(*arguments: Any, **named: Any) -> None:
        virtual_time.run(story(*arguments, **named))

    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()


# The first authentication


@in_virtual_time
async def test_a_client_with_the_right_password_is_served_under_its_name() -> None:
    client = SaslClient()
    assert await client.api_versions() == b"served"
    assert client.connection.principal == ANONYMOUS
    assert await client.handshake() == SaslHandshakeResponse(0, ["PLAIN", "TWICE"])
    assert await client.token(ALICE) == SaslAuthenticateResponse(0, None, b"", 0)
    assert client.connection.principal == "User:alice"
    assert await client.metadata() == b"served"
    assert await client.api_versions() == b"served"


@pytest.mark.parametrize("version", [0, 1, 2])
@in_virtual_time
async def test_every_version_of_saslauthenticate_is_served(version: int) -> None:
    client = SaslClient(SaslLimits(reauth_ms=8_000))
    await client.handshake()
    reply = await client.token(ALICE, version)
    assert reply.session_lifetime_ms == (8_000 if version else 0)


@in_virtual_time
async def test_the_handshake_may_come_first() -> None:
    client = SaslClient()
    assert (await client.log_in()).error_code == 0
    assert await client.metadata() == b"served"


@pytest.mark.parametrize("token", [WRONG, NOBODY], ids=["wrong", "nobody"])
@in_virtual_time
async def test_a_wrong_password_and_an_unknown_user_get_one_answer_after_the_delay_and_are_closed(token: bytes) -> None:
    client = SaslClient()
    await client.handshake()
    began_s = now_s()
    assert await client.token(token) == SaslAuthenticateResponse(58, INVALID, b"", 0)
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)
    assert client.is_closed()
    assert client.connection.principal == ANONYMOUS


@in_virtual_time
async def test_a_client_that_cannot_be_checked_now_gets_no_answer_and_may_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(*_: object) -> Found:
        return Refused(None, "too many wait", is_answered=False)

    monkeypatch.setattr(Twice, "_slow", full)
    client = SaslClient()
    for _ in range(30):  # others behind the same address had wrong passwords
        client.authentication._common.delays.failed("192.0.2.1", round(1000 * DELAY_S), VirtualClock().now_ms())
    await client.handshake("TWICE")
    began_s = now_s()
    assert await client.token(ALICE) == CLOSED
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)
    assert client.authentication._common.counts.failed == 1


@plants(authentication.EVALUATION)
@unforeseen
@pytest.mark.parametrize("mechanism", ["PLAIN", "TWICE"])
@in_virtual_time
async def test_a_token_whose_evaluation_fails_is_counted_and_delayed_like_a_wrong_one(
    error: BaseException, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*{"PLAIN": (PlainExchange, "evaluate"), "TWICE": (Twice, "_slow")}[mechanism], raising(error))
    client = SaslClient()
    await client.handshake(mechanism)
    began_s = now_s()
    with logged(authentication.EVALUATION, "192.0.2.1"):
        reply = await client.token(ALICE)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)
    assert client.authentication._common.counts.failed == 1
    assert client.is_closed()


@in_virtual_time
async def test_another_request_first_closes_the_connection() -> None:
    client = SaslClient()
    assert await client.metadata() == CLOSED
    assert client.client.refusals == ["METADATA before authentication: this listener expects SASL"]


@in_virtual_time
async def test_a_second_apiversions_closes_the_connection() -> None:
    client = SaslClient()
    assert await client.api_versions() == b"served"
    assert await client.api_versions() == CLOSED


@in_virtual_time
async def test_apiversions_that_is_answered_with_an_error_may_be_sent_again() -> None:
    client = SaslClient()
    client.client.send(
        bytes(request_frame(1, "abcd", ApiVersionsRequest(), 3))[4:].replace(b"\0\x12\0\3", b"\0\x12\0\x63")
    )
    assert await client.answer() == b"served"
    assert await client.api_versions(software="-bad-") == b"served"
    assert await client.api_versions() == b"served"
    assert await client.api_versions() == CLOSED


@in_virtual_time
async def test_a_mechanism_that_is_not_enabled_gets_the_list_of_those_that_are() -> None:
    client = SaslClient()
    began_s = now_s()
    assert await client.handshake("SCRAM-SHA-256") == SaslHandshakeResponse(33, ["PLAIN", "TWICE"])
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)
    assert client.is_closed()


@in_virtual_time
async def test_a_token_without_a_handshake_closes_the_connection() -> None:
    assert await SaslClient().token(ALICE) == CLOSED


@in_virtual_time
async def test_a_second_handshake_is_refused() -> None:
    client = SaslClient()
    await client.handshake()
    assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


@pytest.mark.parametrize("request_and_version", [(MetadataRequest(), 9), (ApiVersionsRequest("test", "1"), 3)])
@in_virtual_time
async def test_another_request_where_a_token_is_expected_gets_an_empty_reply_of_its_own_and_the_end(
    request_and_version: tuple[Any, int],
) -> None:
    client = SaslClient()
    await client.handshake()
    began_s = now_s()
    reply = await client.call(*request_and_version)
    assert type(reply) is APIS[request_and_version[0].api_key].response
    assert getattr(reply, "error_code", 0) in (0, ErrorCode.ILLEGAL_SASL_STATE)
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)
    assert client.is_closed()


@in_virtual_time
async def test_a_mechanism_may_need_several_tokens_and_time() -> None:
    client = SaslClient()
    await client.handshake("TWICE")
    assert await client.token(b"first") == SaslAuthenticateResponse(0, None, b"go on", 0)
    assert client.connection.principal == ANONYMOUS
    assert await client.token(b"second") == SaslAuthenticateResponse(0, None, b"done", 0)
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_a_client_that_leaves_while_its_token_is_checked_harms_nothing() -> None:
    client = SaslClient()
    await client.handshake("TWICE")
    client.client.send(bytes(request_frame(1, "abcd", SaslAuthenticateRequest(b"first"), 2))[4:])
    client.connection.connection_lost(None)
    await asyncio.sleep(5)
    assert client.client.is_gone
    assert client.connection.principal == ANONYMOUS


# Pipelined requests


def pipelined(*requests: tuple[Any, int]) -> list[bytes]:
    return [bytes(request_frame(1, "abcd", request, version))[4:] for request, version in requests]


@pytest.mark.parametrize(("mechanism", "token"), [("PLAIN", WRONG), ("TWICE", b"wrong")])
@in_virtual_time
async def test_requests_that_were_sent_behind_a_wrong_token_are_never_served(mechanism: str, token: bytes) -> None:
    client = SaslClient()
    many = [(MetadataRequest(), 9)] * 10
    client.client.send(*pipelined((SaslHandshakeRequest(mechanism), 1), (SaslAuthenticateRequest(token), 2), *many))
    await asyncio.sleep(10)
    assert client.client.started == []
    assert client.is_closed()


@pytest.mark.parametrize(("mechanism", "token"), [("PLAIN", ALICE), ("TWICE", b"expiring")])
@in_virtual_time
async def test_requests_that_were_sent_behind_a_right_token_are_served_after_it(mechanism: str, token: bytes) -> None:
    client = SaslClient(socket_limits=Limits(fencepost_connection_max_in_flight=20))
    many = [(MetadataRequest(), 9)] * 3
    client.client.send(*pipelined((SaslHandshakeRequest(mechanism), 1), (SaslAuthenticateRequest(token), 2), *many))
    served_early = len(client.client.started)
    assert served_early == (3 if mechanism == "PLAIN" else 0)
    await asyncio.sleep(2)
    assert len(client.client.started) == 3
    assert isinstance(await client.answer(), bytes)
    assert isinstance(await client.answer(), bytes)
    assert [await client.answer() for _ in range(3)] == [b"served"] * 3


@in_virtual_time
async def test_requests_that_were_sent_behind_another_handshake_are_not_served() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    client.client.started.clear()
    client.client.send(*pipelined((SaslHandshakeRequest("PLAIN"), 1), (MetadataRequest(), 9)))
    assert len(client.client.started) == 1, "only the handshake"
    await asyncio.sleep(5)
    assert len(client.client.started) == 1
    assert client.is_closed()


# Raw tokens


@in_virtual_time
async def test_raw_tokens_of_any_length_are_accepted() -> None:
    client = SaslClient()
    assert (await client.handshake(version=0)).error_code == 0
    assert await client.raw(b"\0c\0d") == b"", "an empty frame says that it worked"
    assert client.connection.principal == "User:c"
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_raw_tokens_are_challenged_in_frames_of_their_own() -> None:
    client = SaslClient()
    await client.handshake("TWICE", version=0)
    assert await client.raw(b"first") == b"go on"
    assert await client.raw(b"second") == b"done"
    assert await client.metadata() == b"served"


@pytest.mark.parametrize("token", [b"", b"\0", WRONG, pipelined((MetadataRequest(), 9))[0]], ids=repr)
@in_virtual_time
async def test_a_wrong_raw_token_closes_the_connection_without_a_reply_after_the_delay(token: bytes) -> None:
    client = SaslClient()
    await client.handshake(version=0)
    began_s = now_s()
    assert await client.raw(token) == CLOSED
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)


@in_virtual_time
async def test_short_frames_are_refused_again_after_raw_tokens() -> None:
    client = SaslClient()
    await client.handshake(version=0)
    await client.raw(b"\0c\0d")
    assert await client.raw(b"four") == CLOSED


# Bounds


@pytest.mark.parametrize("version", [0, 1])
@in_virtual_time
async def test_a_frame_beyond_the_limit_closes_the_connection_before_it_has_arrived(version: int) -> None:
    client = SaslClient()
    await client.handshake(version=version)
    client.client.send_bytes((524_289).to_bytes(4, "big") + b"\0\x24\0\2")
    assert await client.answer() == CLOSED


@in_virtual_time
async def test_a_long_request_that_is_no_token_is_not_decoded() -> None:
    client = SaslClient()
    await client.handshake()
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(5_000)]
    began_s = now_s()
    assert await client.call(MetadataRequest(topics), 9) == CLOSED
    assert now_s() - began_s < 0.1


@in_virtual_time
async def test_larger_frames_are_served_once_the_client_is_known() -> None:
    client = SaslClient()
    await client.log_in()
    large = pipelined((MetadataRequest(), 9))[0] + bytes(600_000)
    client.client.send(large)
    assert await client.answer() == b"served"


@in_virtual_time
async def test_a_client_has_a_time_to_authenticate() -> None:
    client = SaslClient()
    assert await client.api_versions() == b"served"
    await client.handshake()
    await asyncio.sleep(9.9)
    assert not client.is_closed()
    await asyncio.sleep(0.2)
    assert client.is_closed()
    assert client.client.refusals == ["the client has not authenticated within 10000 ms"]


@in_virtual_time
async def test_the_time_is_no_matter_once_the_client_is_known() -> None:
    client = SaslClient()
    await client.log_in()
    await asyncio.sleep(60)
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_the_time_counts_again_for_another_authentication() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    await client.handshake()
    await asyncio.sleep(10.1)
    assert client.is_closed()


@in_virtual_time
async def test_a_failed_client_waits_longer_the_more_often_it_fails() -> None:
    sasl, delays_s = listener(SaslLimits()), []
    for _ in range(16):
        client = SaslClient()
        client.authentication._common = sasl
        await client.handshake()
        began_s = now_s()
        assert (await client.token(WRONG)).error_code == 58
        delays_s.append(now_s() - began_s)
    assert max(delays_s[:10]) < 0.4
    assert min(delays_s[-2:]) > 4.7
    assert sasl.counts == AuthenticationCounts(failed=16)


# Other authentications


@in_virtual_time
async def test_a_client_may_authenticate_again_at_once_and_then_after_a_second() -> None:
    client = SaslClient(SaslLimits(reauth_ms=8_000))
    assert (await client.log_in()).session_lifetime_ms == 8_000
    assert (await client.log_in()).session_lifetime_ms == 8_000
    assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.metadata() == b"served"
    await asyncio.sleep(1)
    assert (await client.log_in()).session_lifetime_ms == 8_000
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_another_principal_is_refused() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    reply = await client.log_in(BOB)
    assert reply.error_code == 58
    assert reply.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert client.is_closed()


@in_virtual_time
async def test_a_wrong_password_ends_a_connection_that_was_served() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    assert (await client.log_in(WRONG)).error_code == 58
    assert client.is_closed()


@pytest.mark.parametrize("again", [False, True])
@in_virtual_time
async def test_a_mechanism_without_a_text_of_its_own_gets_kafkas(again: bool) -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.handshake("TWICE")
    if again:
        await client.token(b"first")
        await client.token(b"second")
        await client.handshake("TWICE")
    reply = await client.token(b"other")
    kind = "re-authentication" if again else "authentication"
    assert reply.error_message == (
        f"Authentication failed during {kind} due to invalid credentials with SASL mechanism TWICE"
    )


@in_virtual_time
async def test_another_mechanism_ends_at_its_token() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    assert (await client.handshake("TWICE")).error_code == 0
    began_s = now_s()
    assert await client.token(b"first") == CLOSED
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)


@in_virtual_time
async def test_another_mechanism_that_is_not_enabled_ends_the_connection() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    began_s = now_s()
    assert await client.handshake("GSSAPI") == CLOSED
    assert now_s() - began_s == pytest.approx(DELAY_S, abs=0.1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "TWICE", "GSSAPI"])
@in_virtual_time
async def test_a_session_without_an_end_is_not_authenticated_again(mechanism: str) -> None:
    client = SaslClient()
    await client.log_in()
    assert await client.handshake(mechanism) == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
    assert await client.handshake(mechanism, 0) == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_requests_between_handshake_and_token_end_the_connection() -> None:
    client = SaslClient(SaslLimits(reauth_ms=60_000))
    await client.log_in()
    await client.handshake()
    assert type(await client.metadata()) is APIS[3].response
    assert client.is_closed()


@in_virtual_time
async def test_nothing_is_served_once_the_session_has_expired() -> None:
    client = SaslClient(SaslLimits(reauth_ms=8_000))
    await client.log_in()
    await asyncio.sleep(7.9)
    assert await client.metadata() == b"served"
    await asyncio.sleep(0.2)
    assert not client.is_closed()
    assert await client.metadata() == CLOSED
    assert client.client.refusals == ["METADATA when the time of the session was over"]


@in_virtual_time
async def test_an_expired_client_may_authenticate_again() -> None:
    client = SaslClient(SaslLimits(reauth_ms=8_000))
    await client.log_in()
    await asyncio.sleep(9)
    assert (await client.log_in()).session_lifetime_ms == 8_000
    assert await client.metadata() == b"served"


@in_virtual_time
async def test_another_authentication_in_time_makes_the_session_last() -> None:
    client = SaslClient(SaslLimits(reauth_ms=8_000))
    await client.log_in()
    for _ in range(5):
        await asyncio.sleep(7)
        await client.log_in()
        assert await client.metadata() == b"served"


@in_virtual_time
async def test_a_session_ends_with_the_token_that_began_it() -> None:
    client = SaslClient(SaslLimits(reauth_ms=3_600_000))
    await client.handshake("TWICE")
    reply = await client.token(b"expiring")
    assert 29_000 <= reply.session_lifetime_ms <= 31_000
    await asyncio.sleep(31)
    assert await client.metadata() == CLOSED


@in_virtual_time
async def test_each_way_that_an_authentication_ends_is_counted() -> None:
    sasl = listener(SaslLimits(reauth_ms=2_000))

    async def client() -> SaslClient:
        one = SaslClient(SaslLimits(reauth_ms=2_000))
        one.authentication._common = sasl
        return one

    for token in (ALICE, ALICE, ALICE, WRONG):
        one = await client()
        await one.log_in(token)
    expiring, again = await client(), await client()
    await expiring.log_in()
    await again.log_in()
    await again.log_in()
    await again.metadata()
    await asyncio.sleep(2)
    await expiring.metadata()
    await again.log_in(WRONG)
    assert sasl.counts == AuthenticationCounts(succeeded=5, failed=1, succeeded_again=1, failed_again=1, expired=1)


# The log


@in_virtual_time
async def test_the_log_names_existing_users_only_and_no_password() -> None:
    with capture_logs() as lines:
        for token in (WRONG, NOBODY):
            client = SaslClient()
            await client.handshake()
            await client.token(token)
    failed = [line for line in lines if line["event"] == "authentication_failed"]
    assert [(line["user"], line["mechanism"], line["reason"]) for line in failed] == [
        ("alice", "PLAIN", "wrong user or password"),
        (None, "PLAIN", "wrong user or password"),
    ]
    assert all(line["client"] == "192.0.2.1:50000" for line in failed)
    assert not any(secret in str(lines) for secret in ("nobody", "alice-1", "'wrong'"))


# Hostile clients


@settings(max_examples=300)
@given(
    frames=st.lists(
        st.one_of(
            st.sampled_from(
                pipelined(
                    (SaslHandshakeRequest("PLAIN"), 1),
                    (SaslHandshakeRequest("PLAIN"), 0),
                    (SaslHandshakeRequest("NONE"), 1),
                    (SaslAuthenticateRequest(WRONG), 1),
                    (ApiVersionsRequest("a", "1"), 3),
                    (MetadataRequest(), 9),
                )
            ),
            st.binary(min_size=4, max_size=40),
            st.binary(max_size=20).map(lambda rest: b"\0\x11\0\1" + rest),
            st.binary(max_size=20).map(lambda rest: b"\0\x24\0\2" + rest),
            st.binary(max_size=20).map(lambda rest: b"\0\x12\0\3" + rest),
        ),
        max_size=8,
    )
)
def test_whatever_a_client_sends_only_apiversions_is_served_before_a_right_password(frames: list[bytes]) -> None:
    async def story() -> None:
        client = SaslClient()
        with capture_logs() as lines:
            client.client.send(*frames)
            await asyncio.sleep(20)
        assert [frame for frame in client.client.started if frame[:2] != b"\0\x12"] == []
        assert len(client.client.started) <= len(frames)
        assert client.connection.principal == ANONYMOUS
        assert client.is_closed(), "at the latest by the end of the time"
        assert [line["event"] for line in lines if line["log_level"] == "error"] == []

    virtual_time.run(story())


# Exceptions that nobody foresaw


@plants(authentication.EXPIRY)
@unforeseen
def test_a_session_whose_expiry_fails_ends(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        client = SaslClient(SaslLimits(reauth_ms=8_000))
        await client.log_in()
        monkeypatch.setattr(Authentication, "_step", raising(error))
        with logged(authentication.EXPIRY):
            await asyncio.sleep(9)
        assert client.client.transport.ended == "aborted"

    virtual_time.run(story())


@plants(authentication.DEADLINE)
@unforeseen
def test_an_authentication_whose_end_fails_ends(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        client = SaslClient()
        monkeypatch.setattr(Authentication, "_step", raising(error))
        with logged(authentication.DEADLINE):
            await asyncio.sleep(11)
        assert client.client.transport.ended == "aborted"

    virtual_time.run(story())
