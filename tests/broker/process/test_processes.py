"""The parent of several processes, and what they tell it; tests/integration/test_processes.py runs whole brokers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.kernel import supervision
from fencepost.broker.network.server import SocketListener, StartError
from fencepost.broker.process import node_process, serve
from fencepost.broker.process.node_process import NodeProcess, Specification
from fencepost.broker.process.node_settings import check_ports, settings_of_node
from fencepost.broker.process.processes import KEEPING_PROCESS, MESSAGE, Processes, ProcessOfNode
from fencepost.soak.free_port import free_port
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs

SETTINGS = Settings(
    listeners=("PLAINTEXT://127.0.0.1:9092", "OTHER://[::1]:0"),
    listener_security_protocol_map=("OTHER:PLAINTEXT",),
    advertised_listeners=("PLAINTEXT://example.org:19092",),
    fencepost_http_listener="127.0.0.1:9644",
)


# Settings of a node


def test_ports_of_nodes_follow_each_other_and_free_ones_stay_free() -> None:
    of_third = settings_of_node(SETTINGS, "/data", 2)
    assert of_third.node_id == SETTINGS.node_id + 2
    assert of_third.log_dirs == f"/data/node.{SETTINGS.node_id + 2}"
    assert of_third.listeners == ("PLAINTEXT://127.0.0.1:9094", "OTHER://[::1]:0")
    assert of_third.advertised_listeners == ("PLAINTEXT://example.org:19094",)
    assert of_third.fencepost_http_listener == "127.0.0.1:9646"


def test_ports_that_meet_or_do_not_exist_are_refused() -> None:
    check_ports(SETTINGS, 500)
    near = Settings(listeners=("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT2://127.0.0.1:9094"))
    check_ports(near, 2)
    with pytest.raises(StartError, match="PLAINTEXT2 would both have 9094; choose ports that are 3 apart"):
        check_ports(near, 3)
    with pytest.raises(StartError, match="there is no port 65536"):
        settings_of_node(Settings(listeners=("PLAINTEXT://127.0.0.1:65535",)), "/data", 1)


# What a process tells


def process_with(pipe: int) -> NodeProcess:
    return NodeProcess(Specification([], "/data", 0, {}, pipe, os.getpid()))


@plants(serve.HEARTBEATS)
@unforeseen
async def test_heartbeats_go_on_after_an_unforeseen_failure(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    monkeypatch.setattr(node_process, "HEARTBEAT_INTERVAL_S", 0.001)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = process_with(writing)
    monkeypatch.setattr(process, "_write", raising(error, times=1, then=process._write))
    with logged(serve.HEARTBEATS):
        beating = serve.HEARTBEATS.start_retrying(process.beat)
        await asyncio.sleep(0.05)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    assert len(os.read(reading, 100)) > 1
    os.close(reading)
    os.close(writing)


def test_a_parent_that_does_not_read_stops_nothing() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = process_with(writing)
    for _ in range(100):
        process._write(b"x" * 10_000)
    os.close(reading)
    os.close(writing)


# The parent


class OfNode(ProcessOfNode):
    """A process that is not started: `run` stands for its life."""

    def __init__(self, run: Callable[[], int]) -> None:
        super().__init__(SETTINGS, [], "/data", 0, {})
        self.run = run
        self.is_ready.set()

    async def run_once(self) -> int:
        await asyncio.sleep(0.001)
        return self.run()


@plants(KEEPING_PROCESS)
@unforeseen
async def test_a_process_that_could_not_be_started_is_started_again(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    started: list[str] = []

    def run() -> int:
        started.append("started")
        return 0

    processes = Processes([OfNode(raising(error, times=1, then=run))])
    with logged(KEEPING_PROCESS):
        running = asyncio.create_task(processes.run())
        await until(lambda: started)
        processes.stop()
        await running


@pytest.mark.parametrize(("exit_code", "level"), [(0, "info"), (3, "error"), (-9, "error")])
async def test_a_process_that_was_asked_to_end_is_no_error_when_it_has(exit_code: int, level: str) -> None:
    process = OfNode(lambda: exit_code)
    process.is_ready.set()
    processes = Processes([process])
    with capture_logs() as lines:
        running = asyncio.create_task(processes.run())
        await until(lambda: any(line["event"] == "process_ended" for line in lines))
        processes.stop()
        await running
    ended = next(line for line in lines if line["event"] == "process_ended")
    assert (ended["log_level"], ended["exit_code"]) == (level, exit_code)


@plants(MESSAGE)
async def test_what_a_process_says_and_cannot_be_read_is_reported(tmp_path: Path) -> None:
    process = ProcessOfNode(SETTINGS, [], str(tmp_path), 0, {})
    reading, writing = os.pipe()
    os.write(writing, b"{ no JSON\n")
    with logged(MESSAGE):
        MESSAGE.callback(process._heard)(reading, bytearray())
    os.write(writing, b'\n\n{"cluster_id": "c"}\n{"clus')
    received = bytearray()
    process._heard(reading, received)
    assert process.description == {"cluster_id": "c"}
    assert process.is_ready.is_set()
    assert received == b'{"clus'
    os.close(reading)
    os.close(writing)


def test_while_no_process_listens_clients_are_refused_and_the_port_stays(tmp_path: Path) -> None:
    """Left listening, the socket would connect them, and they would wait."""
    port = free_port()
    settings = Settings(listeners=(f"PLAINTEXT://127.0.0.1:{port}",))
    (listener,) = parse_listeners(settings)
    bound = SocketListener(listener, settings)
    process = ProcessOfNode(settings, [], str(tmp_path), 0, {"PLAINTEXT": bound})
    try:
        for _ in range(2):
            bound.socket.listen()  # as a process does with the same socket
            socket.create_connection(("127.0.0.1", port)).close()
            process._refuse_connections()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with socket.socket() as another, pytest.raises(OSError, match="in use"):
                another.bind(("127.0.0.1", port))
    finally:
        bound.close()
