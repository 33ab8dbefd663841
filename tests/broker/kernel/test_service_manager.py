"""Messages to the service manager: what a unit with `Type=notify` gets from the broker that it starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.broker.kernel.service_manager import READY, notify

WAIT_S = 30.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager, `tmp_path / "notify"`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(WAIT_S)
        yield listening


def test_a_broker_reports_that_it_serves_and_that_it_stops(manager: socket.socket, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "serve",
        "--listener",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    with subprocess.Popen(
        command,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert manager.recv(64) == b"READY=1"
        assert process.stdout.readline().startswith(b"fencepost is ready")
        process.send_signal(signal.SIGTERM)
        assert manager.recv(64) == b"STOPPING=1"
        process.stdout.read()
        assert process.wait(WAIT_S) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_name_with_an_at_sign_is_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"fencepost-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(WAIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify(READY)
        assert listening.recv(64) == READY


def test_nothing_is_sent_without_a_service_manager(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY)
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(64)


def test_a_service_manager_that_is_gone_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    notify(READY)
    assert "service_manager_not_notified" in caplog.text
    assert str(tmp_path / "nowhere") in caplog.text
