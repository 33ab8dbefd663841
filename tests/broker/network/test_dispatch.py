"""Dispatch of frames: versions, undecodable bytes, handlers that fail. The handlers are the test's own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import fencepost.broker.network.dispatch
from fencepost.broker.config import Settings
from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.network.lease_gate import LeaseGate
from fencepost.broker.quotas.client_quotas import Client, RequestMeter
from fencepost.broker.quotas.entities import QuotaKey
from fencepost.broker.requests.api import APIS, CloseConnection, RequestContext, SlicedResponse, UsualAnswer
from fencepost.broker.requests.long_polls import LongPoll, LongPolls, PendingReply
from fencepost.broker.requests.request_cache import RequestCache
from fencepost.broker.requests.routes import Api, Repeats
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame, response_frame
from fencepost.protocol.headers import encode_request_header
from fencepost.protocol.messages.api_versions import ApiVersionsResponse
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from fencepost.protocol.messages.produce import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from fencepost.protocol.schema import decode, encode
from tests.support.captured_events import capture_logs

Handler = Callable[[RequestContext, Any], Any]


class Peer:
    """The connection, as the dispatcher sees it."""

    principal = ANONYMOUS
    authentication = None
    client_host = "192.0.2.1"
    client_port = 50_000
    client_software = ("unknown", "unknown")
    connection_id = 42

    def __init__(self) -> None:
        self.close_callbacks: list[Callable[[], None]] = []
        self.kept_until: list[asyncio.Future[Any]] = []
        self.muted_s: list[float] = []
        self.blocked_until: list[asyncio.Future[Any]] = []
        self.request_cache = RequestCache()

    def mute(self, duration_s: float) -> None:
        self.muted_s.append(duration_s)

    def block_until(self, task: asyncio.Future[Any]) -> None:
        self.blocked_until.append(task)

    def keep_frame_until(self, task: asyncio.Future[Any]) -> None:
        self.kept_until.append(task)

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        self.close_callbacks.append(callback)

    def remove_close_callback(self, callback: Callable[[], None]) -> None:
        self.close_callbacks.remove(callback)


class World:
    """A dispatcher that knows one API, END_TXN, with a handler of the test's choosing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peer = Peer()
        self.apis = {18: APIS[18]}
        monkeypatch.setattr(fencepost.broker.network.dispatch, "APIS", self.apis)
        self.services = cast(
            "Any",
            SimpleNamespace(name="services", settings=Settings(), long_polls=LongPolls(), gate=None, observer=None),
        )
        self.dispatcher = Dispatcher(self.services, loop=asyncio.get_running_loop())

    def serve(
        self,
        handler: Handler,
        *,
        request: type[Any] = EndTxnRequest,
        response: type[Any] = EndTxnResponse,
        versions: tuple[int, int] = (0, 5),
        cancelled: bool = False,
        failed: Callable[[Any, ErrorCode, int], Any] | None = None,
        unstable_from: int | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.apis[request.api_key] = Api(
            key=request.api_key,
            name="Tested",
            request=request,
            response=response,
            minimum_version=versions[0],
            maximum_version=versions[1],
            advertised_minimum=0,
            module=__name__,
            handler=handler,
            errors=frozenset(),
            failed=failed or (lambda request, error, version: EndTxnResponse(error_code=error)),
            is_cancelled_on_disconnect=cancelled,
            unstable_from=unstable_from,
            repeats=repeats,
        )

    def send(self, frame: bytes) -> Any:
        return self.dispatcher.dispatch(memoryview(frame), cast("Any", self.peer))

    def end_txn(self, version: int = 3, *, transactional_id: str = "t", junk: bytes = b"") -> Any:
        header = encode_request_header(26, version, 77, "client", 2 if version >= 3 else 1)
        return self.send(bytes(header + encode(EndTxnRequest(transactional_id=transactional_id), version)) + junk)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def reply_of(chunks: Any, version: int = 3) -> EndTxnResponse:
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    return decode(EndTxnResponse, frame, version, 9 if version >= 3 else 8)


class NotReadable(dict[int, Api]):
    """APIs whose modules cannot be read: there may be no descriptor left."""

    def get(self, key: int, default: Any = None) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


async def test_an_api_that_cannot_be_loaded_closes_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencepost.broker.network.dispatch, "APIS", NotReadable())
    with pytest.raises(CloseConnection, match=r"API key 26 cannot be loaded: .*Too many open files"):
        world.end_txn()


async def test_an_unstable_version_is_served_only_where_it_is_switched_on(world: World) -> None:
    world.serve(lambda context, request: EndTxnResponse(), unstable_from=5)
    assert reply_of(world.end_txn(4), 4).error_code == 0
    with pytest.raises(CloseConnection, match="versions 0 to 4 are"):
        world.end_txn(5)
    world.services.settings = Settings(unstable_api_versions_enable=True)
    assert reply_of(world.end_txn(5), 5).error_code == 0


@pytest.mark.parametrize("version", [0, 2, 3, 5])
async def test_a_request_reaches_its_handler_and_the_reply_its_client(world: World, version: int) -> None:
    seen: list[tuple[RequestContext, EndTxnRequest]] = []

    def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        seen.append((context, request))
        return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)

    world.serve(handler)
    assert reply_of(world.end_txn(version), version).error_code == ErrorCode.INVALID_TXN_STATE
    ((context, request),) = seen
    assert request.transactional_id == "t"
    assert (context.api_version, context.correlation_id, context.client_id) == (version, 77, "client")
    assert (context.client_host, context.connection) == ("192.0.2.1", world.peer)
    assert context.services is world.services


async def test_a_request_that_cannot_be_remembered_is_answered_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(RequestCache, "remember", fail)
    world.serve(lambda context, request: EndTxnResponse(), repeats=Repeats(request=("producer_epoch",), answer=()))
    with capture_logs() as logs:
        for _ in range(2):
            assert reply_of(world.end_txn()).error_code == ErrorCode.NONE
    assert [line["event"] for line in logs] == ["request_not_remembered"] * 2


@pytest.mark.parametrize("version", range(6))
async def test_a_request_that_repeats_another_reaches_its_handler_with_its_own_values(
    world: World, version: int
) -> None:
    seen: list[tuple[int, bool, int]] = []

    def handler(context: RequestContext, request: EndTxnRequest) -> UsualAnswer:
        seen.append((context.correlation_id, request.committed, request.producer_epoch))
        values = request.producer_id, request.producer_epoch + 1
        return UsualAnswer(values, lambda: EndTxnResponse(producer_id=values[0], producer_epoch=values[1]))

    repeats = Repeats(request=("producer_epoch",), answer=("producer_id", "producer_epoch"))
    world.serve(handler, repeats=repeats)
    for number in range(5):
        for committed in (True, False):
            request = EndTxnRequest(
                transactional_id="t", producer_id=7, producer_epoch=10 * number, committed=committed
            )
            frame = request_frame(77 if number else -1, "client", request, version)[LENGTH_BYTES:]
            reply = world.send(frame)
            response = EndTxnResponse(producer_id=7, producer_epoch=10 * number + 1)
            assert b"".join(reply) == b"".join(response_frame(77 if number else -1, response, version))
    assert seen == [
        (77 if number else -1, committed, 10 * number) for number in range(5) for committed in (True, False)
    ]
    assert len(world.peer.request_cache) == 2


async def test_a_coroutine_that_does_not_wait_is_answered_at_once(world: World) -> None:
    async def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)

    world.serve(handler)
    assert reply_of(world.end_txn()).error_code == ErrorCode.PRODUCER_FENCED


async def test_handlers_that_wait_have_begun_in_request_order(world: World) -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        order.append(request.transactional_id)
        await gate.wait()
        return EndTxnResponse()

    world.serve(handler)
    tasks = [world.end_txn(transactional_id=name) for name in ("one", "two", "three")]
    assert order == ["one", "two", "three"]
    gate.set()
    for task in tasks:
        assert reply_of(await task).error_code == ErrorCode.NONE


async def test_a_handler_without_a_reply_sends_none(world: World) -> None:
    world.serve(lambda context, request: None)
    assert world.end_txn() is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (StorageError("the disk is gone"), ErrorCode.KAFKA_STORAGE_ERROR),
        (CoordinatorRefusal(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_raises_is_answered_with_an_error(
    world: World, error: Exception, code: ErrorCode, waits: bool
) -> None:
    async def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        if waits:
            await asyncio.sleep(0)
        raise error

    world.serve(handler)
    outcome = world.end_txn()
    assert reply_of(await outcome if waits else outcome).error_code == code


async def test_an_answer_that_cannot_be_encoded_is_a_failure_like_any_other(world: World) -> None:
    world.serve(lambda context, request: EndTxnResponse(error_code=1_000_000))
    assert reply_of(world.end_txn()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_failure_that_cannot_be_answered_closes_the_connection(world: World) -> None:
    def failed(request: Any, error: ErrorCode, version: int) -> Any:
        raise KeyError("and another bug")

    def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        raise ValueError("a bug")

    world.serve(handler, failed=failed)
    with pytest.raises(CloseConnection, match="could not be answered"):
        world.end_txn()


async def test_a_handler_may_close_the_connection(world: World) -> None:
    async def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        await asyncio.sleep(0)
        raise CloseConnection("no reply could carry this")

    world.serve(handler)
    with pytest.raises(CloseConnection, match="no reply could carry this"):
        await world.end_txn()


async def test_the_frame_of_a_write_that_waits_is_kept_and_that_of_others_is_not(world: World) -> None:
    async def handler(context: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)

    world.serve(handler)
    await world.end_txn()
    assert world.peer.kept_until == []
    world.serve(handler, request=ProduceRequest, response=ProduceResponse, versions=(3, 13))
    task = world.send(bytes(encode_request_header(0, 9, 77, "client", 2) + encode(ProduceRequest(acks=1), 9)))
    assert world.peer.kept_until == [task]
    assert await task is None


async def test_the_frame_of_a_write_is_released_when_its_handler_clears_needs_frame(world: World) -> None:
    def handler(context: RequestContext, request: ProduceRequest) -> Awaitable[None]:
        context.needs_frame = False
        return asyncio.sleep(0)

    world.serve(handler, request=ProduceRequest, response=ProduceResponse, versions=(3, 13))
    task = world.send(bytes(encode_request_header(0, 9, 77, "client", 2) + encode(ProduceRequest(acks=1), 9)))
    assert world.peer.kept_until == []
    assert await task is None


async def test_a_failed_write_without_acknowledgement_closes_the_connection(world: World) -> None:
    def handler(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        raise ValueError("a bug")

    world.serve(handler, request=ProduceRequest, response=ProduceResponse, versions=(3, 13))
    frame = bytes(encode_request_header(0, 9, 77, "client", 2) + encode(ProduceRequest(acks=0), 9))
    with pytest.raises(CloseConnection, match="UNKNOWN_SERVER_ERROR"):
        world.send(frame)


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        (b"\x00\x1a\x00", "undecodable"),
        (b"\x00\x1a\x00\x03\x00\x00\x00\x01\xff\xff\x00", "undecodable"),
        (b"\x00\x1a\x00\x03\x00\x00\x00\x01\x7f\xff", "undecodable"),
        (b"\x00\x1a\x00\x09\x00\x00\x00\x01\xff\xff\x00", "Tested version 9 is not served"),
        (b"\x00\x1a\xff\xff\x00\x00\x00\x01\xff\xff\x00", "Tested version -1 is not served"),
        (b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff", "API key 32767 is not served"),
        (b"\xff\xff\x00\x00\x00\x00\x00\x01\xff\xff", "API key -1 is not served"),
    ],
)
async def test_an_undecodable_request_closes_the_connection(world: World, frame: bytes, part: str) -> None:
    world.serve(lambda context, request: EndTxnResponse())
    with pytest.raises(CloseConnection, match=part):
        world.send(frame)


async def test_bytes_behind_a_request_are_ignored(world: World) -> None:
    """librdkafka sends some."""
    world.serve(lambda context, request: EndTxnResponse())
    assert reply_of(world.end_txn(junk=b"junk")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("body", [b"", b"\xff" * 40, b"\x00"])
async def test_a_newer_api_versions_request_gets_the_range_without_being_decoded(world: World, body: bytes) -> None:
    reply = b"".join(world.send(b"\x00\x12\x00\x06\x00\x00\x00\x4d" + body))
    response = decode(ApiVersionsResponse, reply, 0, 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 5)]


async def test_an_impossible_api_versions_version_is_answered_like_one_of_the_future(world: World) -> None:
    reply = b"".join(world.send(b"\x00\x12\xff\xff\x00\x00\x00\x4d\xff\xff"))
    response = decode(ApiVersionsResponse, reply, 0, 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_handler_that_waits_for_its_client_only_is_cancelled_when_that_is_gone(world: World) -> None:
    async def handler(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    world.serve(handler, cancelled=True)
    task = world.end_txn()
    (disconnected,) = world.peer.close_callbacks
    disconnected()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert world.peer.close_callbacks == []


class Poll(LongPoll[EndTxnResponse]):
    """Raises or answers what a test has put there."""

    def __init__(self) -> None:
        self.outcome: EndTxnResponse | Exception | None = None
        self.wake: Callable[[], None] = lambda: None
        self.has_ended = False

    def begin(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def poll(self) -> EndTxnResponse | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def end(self) -> None:
        self.has_ended = True


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE), ErrorCode.INVALID_TXN_STATE),
        (CoordinatorRefusal(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (StorageError("the disk is gone"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ValueError("a mistake"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_long_poll_is_answered_like_any_other_request(
    world: World, outcome: EndTxnResponse | Exception, error: ErrorCode
) -> None:
    poll = Poll()
    world.serve(lambda context, request: poll)
    pending = world.end_txn()
    assert isinstance(pending, PendingReply)
    replies: list[Any] = []
    pending.on_reply = lambda reply, reason: replies.append(reply)
    poll.wake()
    await asyncio.sleep(0)
    assert not replies
    poll.outcome = outcome
    poll.wake()
    await asyncio.sleep(0)
    assert reply_of(replies[0]).error_code == error
    assert poll.has_ended


async def test_other_handlers_run_to_their_end_without_their_client(world: World) -> None:
    async def handler(context: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)
        return WriteTxnMarkersResponse()

    world.serve(handler, request=WriteTxnMarkersRequest, response=WriteTxnMarkersResponse, versions=(1, 2))
    task = world.send(bytes(encode_request_header(27, 1, 77, None, 2) + encode(WriteTxnMarkersRequest(), 1)))
    assert world.peer.close_callbacks == []
    assert await task


# Quotas


class Quotas:
    """What one request is charged, in place of the real thing."""

    def __init__(self, *, is_active: bool) -> None:
        self.is_active = is_active
        self.charged: list[tuple[str, Client, float]] = []

    def meter(
        self, principal: str, client_id: str, *, produced_bytes: int, mute: Callable[[float], None]
    ) -> RequestMeter:
        limited = frozenset({QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE})
        meter = RequestMeter(cast("Any", self), (principal, client_id), limited, mute)
        meter.charge_produced(produced_bytes)
        return meter

    def charge(self, key: str, client: Client, amount: float) -> int:
        self.charged.append((str(key), client, amount))
        return 700 if key == "producer_byte_rate" else 0

    def longest_request_throttle_ms(self) -> int:
        return 1000


def produce_frame() -> bytes:
    header = encode_request_header(0, 9, 77, "client", 2)
    return bytes(header + encode(ProduceRequest(acks=1), 9))


# In a cluster whose nodes have leases


class Lease:
    """is_held: until a test says otherwise."""

    is_held = True

    def in_front_of(self, world: World, **named: Any) -> None:
        gate = LeaseGate(lambda: self.is_held)
        world.dispatcher = Dispatcher(world.services, loop=asyncio.get_running_loop(), lease_gate=gate, **named)


async def _later(response: Any) -> Any:
    await asyncio.sleep(0)
    return response


@pytest.mark.parametrize(
    "handler",
    [
        lambda context, request: EndTxnResponse(),
        lambda context, request: UsualAnswer((1, 2), EndTxnResponse),
        lambda context, request: _later(EndTxnResponse()),
        lambda context, request: _later(UsualAnswer((1, 2), EndTxnResponse)),
        lambda context, request: _later(SlicedResponse(EndTxnResponse())),
    ],
    ids=["at once", "usual", "later", "usual, later", "in slices"],
)
async def test_no_answer_of_a_leader_leaves_after_its_lease(world: World, handler: Handler) -> None:
    lease = Lease()
    lease.in_front_of(world)
    world.serve(handler)

    async def answer() -> Any:
        started = world.end_txn()
        return await started if isinstance(started, asyncio.Future) else started

    assert reply_of(await answer()).error_code == ErrorCode.NONE
    lease.is_held = False
    with pytest.raises(CloseConnection, match="may have lost its lease"):
        await answer()


async def test_a_connection_waits_after_a_produce_until_there_is_room_for_more(world: World) -> None:
    room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    noted: list[str] = []

    def room_after(produced_bytes: int) -> asyncio.Future[None] | None:
        noted.append(f"{produced_bytes} bytes")
        return room if len(noted) > 2 else None

    def handle(context: RequestContext, request: Any) -> ProduceResponse:
        noted.append("appended")
        return ProduceResponse()

    Lease().in_front_of(world, room_after=room_after)
    world.serve(handle, request=ProduceRequest, response=ProduceResponse, versions=(3, 12))
    world.serve(lambda context, request: EndTxnResponse())
    world.end_txn()
    world.send(produce_frame())
    assert not world.peer.blocked_until
    world.send(produce_frame())

    assert noted == ["appended", f"{len(produce_frame())} bytes"] * 2
    assert world.peer.blocked_until == [room]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_producer_over_its_quota_is_muted_and_informed(monkeypatch: pytest.MonkeyPatch, is_slow: bool) -> None:
    world = World(monkeypatch)
    quotas = Quotas(is_active=True)
    world.dispatcher = Dispatcher(world.services, loop=asyncio.get_running_loop(), quotas=cast("Any", quotas))

    async def answer(context: RequestContext, request: Any) -> ProduceResponse:
        if is_slow:
            await asyncio.sleep(0.001)
        return ProduceResponse()

    world.serve(answer, request=ProduceRequest, response=ProduceResponse, versions=(9, 9))
    outcome = world.send(produce_frame())
    assert world.peer.muted_s == [0.7]  # before the reply, so that nothing behind it is begun
    reply = await outcome if is_slow else outcome
    response = decode(ProduceResponse, b"".join(reply)[9:], 9)
    assert response.throttle_time_ms == 700
    key, client_id, amount = quotas.charged[0]
    assert (key, client_id) == ("producer_byte_rate", ("User:ANONYMOUS", "client"))
    assert amount == len(produce_frame())
    assert [key for key, _, _ in quotas.charged[1:]] == ["request_percentage"] * 2
    assert sum(amount for _, _, amount in quotas.charged[1:]) > 0


async def test_while_there_are_no_quotas_nothing_is_metered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    quotas = Quotas(is_active=False)
    world.dispatcher = Dispatcher(world.services, loop=asyncio.get_running_loop(), quotas=cast("Any", quotas))
    contexts: list[RequestContext] = []

    def answer(context: RequestContext, request: Any) -> EndTxnResponse:
        contexts.append(context)
        return EndTxnResponse()

    world.serve(answer)
    world.end_txn()
    assert [context.meter for context in contexts] == [None]
    assert (quotas.charged, world.peer.muted_s) == ([], [])
