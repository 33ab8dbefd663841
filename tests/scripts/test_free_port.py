"""Ports for servers that come back to them."""

from __future__ import annotations

import random
import socket

import pytest

from scripts.free_port import END_PORT, FIRST_PORT, HOST, free_port


def test_a_port_is_free_and_not_one_of_those_for_outgoing_connections() -> None:
    port = free_port()
    assert FIRST_PORT <= port < END_PORT
    with socket.socket() as server:
        server.bind((HOST, port))


def test_processes_whose_chances_are_alike_get_ports_of_their_own() -> None:
    ports = set()
    for _ in range(20):
        random.seed(1)
        ports.add(free_port())
    assert len(ports) > 1


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        used = server.getsockname()[1]
        monkeypatch.setattr("scripts.free_port.FIRST_PORT", used)
        monkeypatch.setattr("scripts.free_port.END_PORT", used + 1)
        with pytest.raises(OSError, match="no free port"):
            free_port()
