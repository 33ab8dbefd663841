"""This broker, from this checkout, as the subject of a measurement, in its settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.soak.free_port import free_ports
from scripts.benchmarks.broker_process import BrokerProcess
from scripts.benchmarks.figures import DURABLE, PAGE_CACHE, TWO_PROCESSES
from scripts.benchmarks.measuring import REMOVED_AT_ONCE

IN_PAGE_CACHE = {"log.flush.interval.messages": str(2**63 - 1)}
"""Acknowledged once the operating system has it, as Apache Kafka does by default."""

WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
"""As an installed package has it: without, each start would compile the broker, which takes as long as the start."""


class FencepostSubject:
    """Fencepost: by default what is acknowledged is on the disk. processes: 0 for one without a parent."""

    can_be_launched = True
    is_to_be_warmed = True

    def __init__(self, name: str = DURABLE, settings: Mapping[str, str] | None = None, *, processes: int = 0) -> None:
        self.name = name
        self._settings = settings or {}
        self._processes = processes

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> BrokerProcess:
        address = ("127.0.0.1", free_ports(max(1, self._processes)))  # each process takes the next port
        command = [
            *(sys.executable, "-m", "fencepost", "serve", "--log-format", "json"),
            *("--listener", "{}:{}".format(*address), "--data-dir", str(data_directory)),
        ]
        if self._processes:
            command += ["--processes", str(self._processes)]
        for name, value in {**REMOVED_AT_ONCE, **self._settings, **settings}.items():
            command += ["--set", f"{name}={value}"]
        log_path = data_directory.with_name(f"{data_directory.name}.broker.log")
        return BrokerProcess(address, command, log_path, environment=WITH_BYTECODE)


def fencepost_in_page_cache() -> FencepostSubject:
    return FencepostSubject(PAGE_CACHE, IN_PAGE_CACHE)


def two_processes() -> FencepostSubject:
    return FencepostSubject(TWO_PROCESSES, IN_PAGE_CACHE, processes=2)
