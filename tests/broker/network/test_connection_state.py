"""The table of a connection: every cell, and what the connection does in the state that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fencepost.broker.network.connection_state import TABLE, ConnectionEvent, ConnectionState, Hold
from fencepost.broker.requests.api import CloseConnection
from tests.broker.network.test_connection import Client, Limits, Waiting

Event, State = ConnectionEvent, ConnectionState
RUNNING, BLOCKED, DRAINING, CLOSING, CLOSED = ConnectionState


def expected_state(event: ConnectionEvent, state: ConnectionState) -> ConnectionState:
    """What the words of the events and states say: a connection on its way to its end does not turn back."""
    if state is CLOSED or event is Event.ABORT:
        return CLOSED
    if state is CLOSING:
        return CLOSED if event is Event.SENT else CLOSING
    if event in (Event.CLOSE, Event.OVERDUE):
        return CLOSING
    if state is DRAINING:
        return CLOSING if event is Event.ANSWERED else DRAINING
    return {Event.HELD: BLOCKED, Event.RELEASED: RUNNING, Event.DRAIN: DRAINING}.get(event, state)


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_every_cell_names_the_state_that_its_words_say(event: ConnectionEvent, state: ConnectionState) -> None:
    assert TABLE[event][state] is expected_state(event, state)


def test_there_is_a_row_for_every_event_and_a_column_for_every_state() -> None:
    assert list(TABLE) == list(Event)
    assert {len(row) for row in TABLE.values()} == {len(State)}


class World:
    """A connection with four requests that wait, and what clients and brokers do to it."""

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.blocking = asyncio.get_running_loop().create_future()
        self.client = Client(
            answer=lambda frame: self.waiting(frame) if bytes(frame) != b"another-" else [b"reply"],
            limits=Limits(fencepost_connection_max_in_flight=10),
        )
        self.client.send(b"waiting1", b"waiting2", b"waiting3", b"waiting4")

    @classmethod
    async def of(cls, state: ConnectionState) -> World:
        world = cls()
        if state is BLOCKED:
            world.client.connection.block_until(world.blocking)
        elif state is DRAINING:
            world.client.connection.drain()
        elif state is CLOSING:
            await world.happens(Event.CLOSE)
        elif state is CLOSED:
            world.client.connection.abort()
        assert world.state is state
        return world

    @property
    def state(self) -> ConnectionState:
        return self.client.connection._state

    async def happens(self, event: ConnectionEvent) -> None:
        connection, futures = self.client.connection, self.waiting.futures
        if event is Event.HELD:
            connection.mute(60)
        elif event is Event.RELEASED:
            self.blocking.set_result(None)
        elif event is Event.DRAIN:
            connection.drain()
        elif event is Event.ANSWERED:
            for future in futures:
                if not future.done():
                    future.set_result(None)
        elif event is Event.OVERDUE:
            if not futures[0].done():  # as for CLOSE
                self.client.transport.is_stuck = True
                futures[0].set_result([bytes(2_000)])
                futures[1].set_result([b"second"])
                await asyncio.sleep(0)
            connection.authentication_overdue(10_000)
        elif event is Event.CLOSE and not futures[0].done():
            # The client does not take the first reply, so the second waits to be sent before the end.
            self.client.transport.is_stuck = True
            futures[0].set_result([bytes(2_000)])
            futures[1].set_result([b"second"])
            futures[2].set_exception(CloseConnection("nonsense"))
        elif event is Event.CLOSE:
            futures[3].set_exception(CloseConnection("nonsense, too"))
        elif event is Event.SENT and not futures[0].done():
            futures[0].set_result([b"first"])
        elif event is Event.SENT:
            self.client.transport.unstick()
        else:
            connection.abort()
        await asyncio.sleep(0)


STARTS: dict[ConnectionState, bool] = {RUNNING: True, BLOCKED: False, DRAINING: False, CLOSING: False, CLOSED: False}
ENDED: dict[ConnectionState, tuple[str | None, ...]] = {
    RUNNING: (None,),
    BLOCKED: (None,),
    DRAINING: (None,),
    CLOSING: (None,),
    CLOSED: ("closed", "aborted"),
}


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
async def test_a_connection_does_what_the_state_of_its_cell_says(
    event: ConnectionEvent, state: ConnectionState
) -> None:
    world = await World.of(state)
    await world.happens(event)
    expected = TABLE[event][state]
    if event is Event.ANSWERED and state is DRAINING:
        expected = CLOSED  # nothing is unsent, so that follows in the same step
    assert world.state is expected
    transport, client = world.client.transport, world.client
    assert transport.ended in ENDED[expected]
    if transport.ended is None:
        assert transport.accepts_input is STARTS[expected]
    client.send(b"another-")
    assert (b"another-" in client.started) is STARTS[expected]


@pytest.mark.parametrize("hold", Hold, ids=lambda hold: hold.name)
@pytest.mark.parametrize("other", Hold, ids=lambda hold: hold.name)
async def test_a_connection_runs_again_when_its_last_hold_is_released(hold: Hold, other: Hold) -> None:
    client = Client()
    step: Callable[..., None] = client.connection._step
    step(client.connection._hold, hold)
    if hold is not Hold.REPLIES:  # that is released at the end of a step in which nothing is unsent
        client.send(b"request1")
        assert client.started == []
        assert not client.transport.accepts_input
    step(client.connection._hold, other)
    step(client.connection._release, hold)
    assert bool(client.started) is (other in (hold, Hold.REPLIES) and hold is not Hold.REPLIES)
    step(client.connection._release, other)
    assert client.started == ([b"request1"] if hold is not Hold.REPLIES else [])
    assert client.transport.accepts_input
