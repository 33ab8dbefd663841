"""Clients that a worker keeps from one batch to the next."""

from __future__ import annotations

import pytest

from fencepost.spark import clients
from fencepost.spark.clients import kept


class Client:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_kept", {})


def test_a_client_is_used_again() -> None:
    with kept("a", Client) as first:
        pass
    with kept("a", Client) as second, kept("b", Client) as other:
        assert second is first
        assert other is not first
    assert not first.is_closed


def test_after_an_error_a_client_is_closed_and_made_anew() -> None:
    with pytest.raises(KeyError), kept("a", Client) as failed:
        raise KeyError
    assert failed.is_closed
    with kept("a", Client) as another:
        assert another is not failed


def test_a_client_that_is_not_to_be_kept_is_closed() -> None:
    with kept("a", Client, is_kept=False) as client:
        assert not client.is_closed
    assert client.is_closed


def test_what_was_idle_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    with kept("a", Client) as idle:
        pass
    now_s += clients.MOST_IDLE_S + 1
    with kept("b", Client):
        assert idle.is_closed
