"""Requests to other nodes: pipelined, matched with their answers, and given up when there will be none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.broker.hosting.peers import PeerUnreachable, TcpPeers, received_error
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import response_frame
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.markers import WritableTxnMarkerResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse

NODE_ID = 2
VERSION = 2
TIMEOUT_S = 5.0

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


def response(correlation_id: int, tag: int) -> bytes:
    answer = WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=tag)])
    return b"".join(response_frame(correlation_id, answer, VERSION))


class OtherNode:
    """A node that answers as the test says; `answer` gets each correlation id."""

    def __init__(self) -> None:
        self.connection_count = 0
        self.client_ids: list[str | None] = []
        self.correlation_ids: list[int] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.is_alive = True
        self.port = 0
        self.answer: Answer = self.echo

    @staticmethod
    async def echo(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(response(correlation_id, correlation_id))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self.writers.append(writer)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                header = read_request_header(await reader.readexactly(length), 2)
                self.client_ids.append(header.client_id)
                self.correlation_ids.append(header.correlation_id)
                await self.answer(header.correlation_id, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def address(self, node_id: int) -> NodeAddress | None:
        return NodeAddress(node_id, "127.0.0.1", self.port) if self.is_alive and node_id == NODE_ID else None


@asynccontextmanager
async def other_node() -> AsyncIterator[tuple[OtherNode, TcpPeers]]:
    node = OtherNode()
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    node.port = server.sockets[0].getsockname()[1]
    peers = TcpPeers(1, node.address)
    try:
        yield node, peers
    finally:
        await peers.close()
        server.close()
        for writer in node.writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in node.writers), return_exceptions=True)


async def ask(peers: TcpPeers, timeout_s: float = TIMEOUT_S) -> int:
    answer: Any = await peers.request(NODE_ID, WriteTxnMarkersRequest(), VERSION, timeout_s)
    return int(answer.markers[0].producer_id)


async def test_requests_share_one_connection_and_each_gets_its_own_answer() -> None:
    async with other_node() as (node, peers):
        assert await asyncio.gather(*(ask(peers) for _ in range(5))) == [0, 1, 2, 3, 4]
        assert await ask(peers) == 5
        assert node.connection_count == 1
        assert set(node.client_ids) == {"broker-1"}


async def test_requests_leave_before_earlier_ones_are_answered() -> None:
    async with other_node() as (node, peers):
        held: list[int] = []

        async def answer_all_with_the_third(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            held.append(correlation_id)
            if len(held) == 3:
                writer.write(b"".join(response(number, number) for number in held))

        node.answer = answer_all_with_the_third
        assert await asyncio.gather(*(ask(peers) for _ in range(3))) == [0, 1, 2]


async def test_a_request_to_a_node_that_hangs_fails_when_the_node_is_taken_for_lost() -> None:
    async with other_node() as (node, peers):
        asked = asyncio.Event()

        async def hang(_: int, __: asyncio.StreamWriter) -> None:
            asked.set()

        node.answer = hang
        asking = asyncio.create_task(ask(peers, timeout_s=600))
        await asked.wait()
        peers.leave_lost()
        await asyncio.sleep(0)
        assert not asking.done(), "it is alive"
        node.is_alive = False
        peers.leave_lost()
        with pytest.raises(PeerUnreachable, match="node 2 is not alive any more"):
            await asking
        node.is_alive, node.answer = True, node.echo
        assert await ask(peers) == 0
        assert node.connection_count == 2


async def test_an_answer_may_come_in_pieces() -> None:
    async with other_node() as (node, peers):

        async def dribble(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            for byte in response(correlation_id, 7):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)

        node.answer = dribble
        assert await ask(peers) == 7


async def test_a_time_out_closes_the_connection_so_that_a_late_answer_is_never_read() -> None:
    async with other_node() as (node, peers):
        late: list[tuple[int, asyncio.StreamWriter]] = []

        async def keep(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            late.append((correlation_id, writer))

        node.answer = keep
        with pytest.raises(PeerUnreachable, match="did not answer within"):
            await ask(peers, 0.05)
        node.answer = node.echo
        request = asyncio.create_task(ask(peers))
        correlation_id, writer = late[0]
        writer.write(response(correlation_id, 99))
        assert await request == 0, "the first answer on a new connection"
        assert node.connection_count == 2


async def test_a_time_out_gives_up_everything_on_its_connection() -> None:
    async with other_node() as (node, peers):

        async def keep(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            pass

        node.answer = keep
        outcomes = await asyncio.gather(ask(peers, 0.05), ask(peers), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PeerUnreachable, PeerUnreachable]


async def test_a_lost_connection_is_reported_and_opened_anew() -> None:
    async with other_node() as (node, peers):

        async def hang_up(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            writer.close()

        node.answer = hang_up
        with pytest.raises(PeerUnreachable):
            await ask(peers)
        node.answer = node.echo
        assert await ask(peers) == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        response(77, 0),  # to a request that was never made
        struct.pack(">ii", 4, 0),  # a header without its tagged fields
        response(0, 0)[:-1] + b"\xff",
    ],
)
async def test_what_cannot_be_read_closes_the_connection(frame: bytes) -> None:
    async with other_node() as (node, peers):

        async def babble(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            writer.write(frame)

        node.answer = babble
        with pytest.raises(PeerUnreachable, match="cannot be read"):
            await ask(peers)
        node.answer = node.echo
        assert await ask(peers) == 0
        assert node.connection_count == 2


async def test_a_node_that_is_not_alive_is_not_waited_for() -> None:
    async with other_node() as (node, peers):
        node.is_alive = False
        with pytest.raises(PeerUnreachable, match="node 2 is not alive"):
            await ask(peers)
        node.is_alive = True
        assert await ask(peers) == 0


async def test_a_refused_connection_is_reported() -> None:
    async def refuse(*_: Any) -> Any:
        raise ConnectionRefusedError("nothing listens")

    peers = TcpPeers(1, lambda node_id: NodeAddress(node_id, "nowhere", 1), connect=refuse)
    with pytest.raises(PeerUnreachable, match="nothing listens"):
        await ask(peers)
    await peers.close()


async def test_a_connection_that_does_not_open_in_time_fails_all_waiting_requests() -> None:
    opening = asyncio.Event()

    async def never(*_: Any) -> Any:
        opening.set()
        await asyncio.Event().wait()

    peers = TcpPeers(1, lambda node_id: NodeAddress(node_id, "nowhere", 1), connect=never)
    patient = asyncio.create_task(ask(peers))
    await opening.wait()
    with pytest.raises(PeerUnreachable):
        await ask(peers, 0.01)
    with pytest.raises(PeerUnreachable):
        await patient
    await peers.close()


async def test_a_request_whose_maker_is_gone_does_not_disturb_the_others() -> None:
    async with other_node() as (node, peers):
        gate = asyncio.Event()

        async def wait(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            await gate.wait()
            writer.write(response(correlation_id, correlation_id))

        node.answer = wait
        gone, stays = asyncio.create_task(ask(peers)), asyncio.create_task(ask(peers))
        while not node.correlation_ids:  # noqa: ASYNC110  # the other end has no event to tell of it
            await asyncio.sleep(0.001)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        gate.set()
        assert await stays == 1


async def test_closing_gives_up_what_waits() -> None:
    async with other_node() as (node, peers):

        async def keep(correlation_id: int, writer: asyncio.StreamWriter) -> None:
            pass

        node.answer = keep
        waiting = asyncio.create_task(ask(peers))
        while not node.correlation_ids:  # noqa: ASYNC110  # the other end has no event to tell of it
            await asyncio.sleep(0.001)
        await peers.close()
        with pytest.raises(PeerUnreachable, match="this node stops"):
            await waiting


def test_an_error_code_that_is_not_known_here_is_an_unknown_error() -> None:
    assert received_error(52) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert received_error(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
