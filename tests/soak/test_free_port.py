"""Ports for servers that come back to them."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys

import pytest

from fencepost.soak.free_port import END_PORT, FIRST_PORT, HOST, MOST_RANGES, PORTS_PER_RANGE, free_port, free_ports


def test_a_port_is_free_and_not_one_of_those_for_outgoing_connections() -> None:
    port = free_port()
    assert FIRST_PORT <= port < END_PORT
    with socket.socket() as server:
        server.bind((HOST, port))


def test_a_port_is_given_again_only_when_all_others_had_their_turn() -> None:
    command = (
        f"from fencepost.soak.free_port import free_port; print(*(free_port() for _ in range({5 * PORTS_PER_RANGE})))"
    )
    ports = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(ports)) == len(ports)


def test_a_process_that_needs_many_ports_leaves_some_to_others() -> None:
    needed = 2 * MOST_RANGES * PORTS_PER_RANGE
    command = f"from fencepost.soak.free_port import free_port; print(*(free_port() for _ in range({needed})))"
    ports = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.split()
    assert len({(int(port) - FIRST_PORT) // PORTS_PER_RANGE for port in ports}) <= MOST_RANGES


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


def test_processes_have_no_port_in_common_whatever_their_ids_are(monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[int, list[socket.socket]] = {}
    monkeypatch.setattr("fencepost.soak.free_port._held", held)
    ports: list[set[int]] = []
    range_count = (END_PORT - FIRST_PORT) // PORTS_PER_RANGE
    for process_id in [*range(1_000_000, 1_000_004), *range(1_000_000 + range_count, 1_000_004 + range_count)]:
        monkeypatch.setattr(os, "getpid", lambda process_id=process_id: process_id)
        ports.append({free_port() for _ in range(PORTS_PER_RANGE)})
    for one in itertools.chain(*held.values()):
        one.close()
    assert len(set.union(*ports)) == sum(map(len, ports))


def test_a_process_that_is_started_has_other_ports_than_its_parent() -> None:
    mine = {free_port() for _ in range(PORTS_PER_RANGE)}
    command = "from fencepost.soak.free_port import free_port; print(*(free_port() for _ in range(200)))"
    child = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert mine.isdisjoint(map(int, child.stdout.split()))


def test_a_process_ends_without_a_warning_of_its_ports() -> None:
    command = [sys.executable, "-X", "dev", "-c", "from fencepost.soak.free_port import free_port; free_port()"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_a_port_in_use_is_passed_over() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind((HOST, port))
        server.listen()
        assert port not in {free_port() for _ in range(2 * PORTS_PER_RANGE)}


def test_there_is_an_error_if_every_range_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        monkeypatch.setattr("fencepost.soak.free_port.FIRST_PORT", server.getsockname()[1])
        monkeypatch.setattr("fencepost.soak.free_port.END_PORT", server.getsockname()[1] + PORTS_PER_RANGE)
        monkeypatch.setattr("fencepost.soak.free_port._held", {})
        with pytest.raises(OSError, match="no free range"):
            free_port()
