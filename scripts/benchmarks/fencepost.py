"""This broker, from this checkout, as the subject of a measurement, in its two settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.benchmarks.broker_process import BrokerProcess
from scripts.benchmarks.measuring import REMOVED_AT_ONCE

IN_PAGE_CACHE = {"log.flush.interval.messages": str(2**63 - 1)}
"""Acknowledged once the operating system has it, as Apache Kafka does by default."""


class FencepostSubject:
    """Fencepost: by default what is acknowledged is on the disk."""

    can_be_launched = True
    is_to_be_warmed = True

    def __init__(self, name: str = "fencepost", settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._settings = settings or {}

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> BrokerProcess:
        address = ("127.0.0.1", free_port())
        command = [
            *(sys.executable, "-m", "fencepost", "serve", "--log-format", "json"),
            *("--listener", "{}:{}".format(*address), "--data-dir", str(data_directory)),
        ]
        for name, value in {**REMOVED_AT_ONCE, **self._settings, **settings}.items():
            command += ["--set", f"{name}={value}"]
        return BrokerProcess(address, command, data_directory.with_name(f"{data_directory.name}.broker.log"))


def fencepost_in_page_cache() -> FencepostSubject:
    return FencepostSubject("fencepost-page-cache", IN_PAGE_CACHE)
