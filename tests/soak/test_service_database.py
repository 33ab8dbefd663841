"""The database of a soak's services: its parts and addresses. tests/two_phase runs its faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.soak import service_database
from fencepost.soak.service_database import ServiceDatabase, _serves_client, go


def test_services_go_through_the_proxy_by_two_ways(tmp_path: Path) -> None:
    database = ServiceDatabase(tmp_path, ["clerk"])
    assert database.url("clerk") != database.pooled_url("clerk")
    for url in (database.url("clerk"), database.pooled_url("clerk")):
        assert url.startswith("postgresql://clerk@127.0.0.1:")
        assert "sslmode=disable" in url


def test_a_pooler_that_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert not ServiceDatabase(tmp_path).has_pooler
    assert not ServiceDatabase(tmp_path).can_be_full


def test_only_a_process_that_serves_a_client_counts_as_one() -> None:
    assert not _serves_client(os.getpid())
    title = "postgres: clerk postgres [local] idle"
    with subprocess.Popen(
        [title, "-c", "print('ready', flush=True); input()"],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert _serves_client(process.pid)


def test_steps_are_gone_with_their_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses_s.append)

    def steps() -> Iterator[float]:
        yield 0.1
        yield 0.2

    go(steps())
    assert pauses_s == [0.1, 0.2]


def test_a_server_that_hangs_at_its_start_is_killed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose checkpointer failed at the end of a recovery."""
    lives: list[str] = []

    class Hanging:
        log = "the log"
        process = SimpleNamespace(poll=lambda: "ended" if lives[-1:] == ["killed"] else None)

        def spawn(self) -> None:
            lives.append("started")

        def is_ready(self) -> bool:
            return "started" in lives

    monkeypatch.setattr(service_database, "HUNG_S", -1.0)
    monkeypatch.setattr(service_database, "_kill", lambda _: lives.append("killed"))
    for _ in service_database._until_ready(cast("Any", Hanging())):
        pass
    assert lives == ["killed", "started"]
