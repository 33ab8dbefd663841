"""Ports for servers that come back to them."""

from __future__ import annotations

import os
import socket

import pytest

from fencepost.soak.free_port import END_PORT, FIRST_PORT, HOST, PORTS_PER_PROCESS, free_port, free_ports


def test_a_port_is_free_and_not_one_of_those_for_outgoing_connections() -> None:
    port = free_port()
    assert FIRST_PORT <= port < END_PORT
    with socket.socket() as server:
        server.bind((HOST, port))


def test_a_port_is_given_again_only_when_all_others_had_their_turn() -> None:
    ports = [free_port() for _ in range(PORTS_PER_PROCESS // 2)]
    assert len(set(ports)) == len(ports)


def test_ports_that_follow_each_other_are_given_to_nobody_else() -> None:
    firsts = [free_ports(3) for _ in range(5)]
    assert len({port for first in firsts for port in range(first, first + 3)}) == 15


def test_a_used_port_is_not_among_those_that_follow_each_other() -> None:
    first = free_ports(2)
    with socket.socket() as server:
        server.bind((HOST, first + 3))
        server.listen()
        found = free_ports(4)
        assert first + 3 not in range(found, found + 4)


def test_processes_that_start_one_after_another_have_no_port_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[set[int]] = []
    for process_id in range(1_000_000, 1_000_008):
        monkeypatch.setattr(os, "getpid", lambda process_id=process_id: process_id)
        ports.append({free_port() for _ in range(PORTS_PER_PROCESS)})
    assert len(set.union(*ports)) == sum(map(len, ports))


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        used = server.getsockname()[1]
        monkeypatch.setattr("fencepost.soak.free_port.FIRST_PORT", used)
        monkeypatch.setattr("fencepost.soak.free_port.END_PORT", used + 1)
        monkeypatch.setattr("fencepost.soak.free_port.PORTS_PER_PROCESS", 1)
        with pytest.raises(OSError, match="no free port"):
            free_port()
