"""Ports of brokers in a container: each has one broker at a time, and the one that was free for longest is next."""

from __future__ import annotations

import pytest

from fencepost.testing.http.ports import NoFreePortError, Ports, address, listener


def test_each_port_is_taken_once_until_it_is_given_back() -> None:
    ports = Ports.parse("29092-29093")
    assert [ports.take(), ports.take()] == [29092, 29093]
    with pytest.raises(NoFreePortError, match="each of the 2 published ports has a broker"):
        ports.take()
    ports.give_back(29093)
    ports.give_back(29092)
    assert ports.take() == 29093


def test_clients_are_sent_to_localhost_and_the_broker_listens_everywhere() -> None:
    assert (address(29092), listener(29092)) == ("localhost:29092", "PLAINTEXT://0.0.0.0:29092")
