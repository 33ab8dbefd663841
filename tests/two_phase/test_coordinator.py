"""One coordinator for many threads: each call ends in its own answer, also while others lose the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fencepost.client.errors import UnreachableError
from fencepost.soak.free_port import free_port
from fencepost.two_phase import Coordinator, Outcome, Token
from fencepost.two_phase.connections import Client
from tests.support.open_transactions import open_transactions

pytestmark = pytest.mark.integration


@pytest.fixture
def open_many(fencepost: Any) -> Callable[[int], list[Token]]:
    topic = fencepost.topic("of-many")

    def open_them(count: int) -> list[Token]:
        names = [f"many-{index}" for index in range(count)]
        return open_transactions(fencepost.host, fencepost.port, topic, names)

    return open_them


@pytest.mark.parametrize("count", [1, 2, 100, 1000])
def test_one_coordinator_ends_as_many_transactions_as_threads_ask_for(
    fencepost: Any, open_many: Callable[[int], list[Token]], count: int
) -> None:
    tokens = open_many(count)
    begin = threading.Barrier(count)
    with Coordinator(fencepost.bootstrap_servers) as coordinator, ThreadPoolExecutor(count) as threads:

        def complete(token: Token) -> None:
            begin.wait()
            coordinator.complete(token, commit=True, timeout_s=300)

        list(threads.map(complete, tokens))
        assert coordinator.in_doubt("many-.*") == []
        assert {coordinator.outcome(token) for token in tokens[-20:]} == {Outcome.COMMITTED}


def test_a_thread_that_connects_anew_fails_no_other_ones_call(
    fencepost: Any, open_many: Callable[[int], list[Token]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = open_many(40)
    end = Client.end
    lost: set[Token] = set()

    def end_after_a_loss(client: Client, token: Token, *, commit: bool, reason: str | None) -> int:
        if token.producer_id % 2 and token not in lost:
            lost.add(token)
            raise UnreachableError("lost")
        return end(client, token, commit=commit, reason=reason)

    monkeypatch.setattr(Client, "end", end_after_a_loss)
    with Coordinator(fencepost.bootstrap_servers) as coordinator, ThreadPoolExecutor(len(tokens)) as threads:
        list(threads.map(lambda token: coordinator.complete(token, commit=True), tokens))
        assert len(lost) == 20
        assert coordinator.in_doubt("many-.*") == []


def test_a_close_lets_the_calls_of_other_threads_end(
    fencepost: Any, open_many: Callable[[int], list[Token]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (token,) = open_many(1)
    end = Client.end
    is_under_way, is_closed = threading.Event(), threading.Event()
    clients: list[Client] = []

    def end_while_it_is_closed(client: Client, token: Token, *, commit: bool, reason: str | None) -> int:
        clients.append(client)
        is_under_way.set()
        assert is_closed.wait(60)
        return end(client, token, commit=commit, reason=reason)

    monkeypatch.setattr(Client, "end", end_while_it_is_closed)
    coordinator = Coordinator(fencepost.bootstrap_servers)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(coordinator.complete, token, commit=True)
        assert is_under_way.wait(60)
        coordinator.close()
        is_closed.set()
        call.result(60)
    assert len(clients) == 1
    assert not clients[0]._connections, "the call closes its connections"


def test_threads_that_wait_for_a_connection_end_in_their_time() -> None:
    coordinator = Coordinator(f"127.0.0.1:{free_port()}")
    began_s = time.monotonic()

    def ask(number: int) -> None:
        with pytest.raises(TimeoutError, match="no coordinator answered within 1 s"):
            coordinator.outcome(Token(number, 0, f"id-{number}"), timeout_s=1)

    with ThreadPoolExecutor(200) as threads:
        list(threads.map(ask, range(200)))
    assert time.monotonic() - began_s < 30  # one after the other, each of them would take a time of its own
