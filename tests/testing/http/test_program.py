"""`fencepost test-broker` as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from fencepost.testing.http.program import AddressError, serve

COMMAND = [sys.executable, "-c", "from fencepost.cli.main import main; main()", "test-broker"]


@contextmanager
def program(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], httpx.Client]]:
    """The process, what it said as JSON, and a client."""
    process = subprocess.Popen(
        [*COMMAND, "--json", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with httpx.Client(base_url=ready["url"], timeout=120, trust_env=False) as client:
            yield process, ready, client
    finally:
        process.kill()
        process.communicate()


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "stdin"])
def test_it_ends_in_order_and_in_silence_with_all_its_brokers(way: str) -> None:
    with program("--until-stdin-closes") as (process, ready, client):
        assert (ready["pid"], set(ready)) == (process.pid, {"url", "pid", "version"})
        assert client.get("/").json()["pid"] == process.pid
        address = client.post("/brokers").json()["bootstrap_servers"]
        own = client.post("/brokers", json={"process": True}).json()
        client.post(f"/brokers/{own['broker']}/freeze")
        if way == "stdin":
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        else:
            process.send_signal(getattr(signal, way))
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out, error) == (0, "", "")
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=10)
        assert not alive(own["process_id"])


def test_an_operation_that_waits_does_not_keep_it() -> None:
    with program() as (process, _, client):
        broker = client.post("/brokers").json()["broker"]
        client.post(f"/brokers/{broker}/topic", json={"name": "orders"})
        sent = threading.Event()

        def wait() -> None:
            sent.set()
            try:
                client.get(f"/brokers/{broker}/records", params={"topic": "orders", "count": 1, "timeout": 300})
            except httpx.HTTPError:
                pass  # the process ends first, or answers

        waiting = threading.Thread(target=wait)
        waiting.start()
        sent.wait()
        process.terminate()
        process.communicate(timeout=60)
        waiting.join(60)
        assert process.returncode == 0


def test_without_the_option_standard_input_may_close() -> None:
    with program() as (process, _, client):
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        broker = client.post("/brokers").json()["broker"]
        assert client.get(f"/brokers/{broker}/topics").json() == {"topics": {}}


def test_two_programs_know_nothing_of_each_other() -> None:
    with program() as (first, _, one), program() as (_, _, other):
        created = one.post("/brokers").json()
        assert other.get("/brokers").json() == {"brokers": []}
        first.kill()
        first.wait()
        assert other.post("/brokers").json()["broker"] == created["broker"]


def test_without_json_it_says_its_address_in_a_line() -> None:
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"test-broker ready: (http://127\.0\.0\.1:\d+)\n", line)
        assert found is not None, line
        assert httpx.get(f"{found[1]}/", timeout=60).status_code == 200
    finally:
        process.kill()
        process.communicate()


def test_it_serves_on_ipv6_with_its_brokers() -> None:
    with program("--host", "::1") as (_, ready, client):
        assert ready["url"].startswith("http://[::1]:")
        broker = client.post("/brokers").json()
        assert broker["bootstrap_servers"].startswith("[::1]:")
        produced = client.post(f"/brokers/{broker['broker']}/produce", json={"topic": "orders", "values": ["tea"]})
        assert produced.json() == {"offsets": [0]}


def test_a_port_that_is_taken_is_said_so() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(AddressError, match=f"cannot listen on localhost:{port}: address already in use"):
                serve("localhost", port, as_json=True, until_stdin_closes=False)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
