"""The least that any asyncio server must do, as the subject of a measurement, in two settings like the broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.benchmarks.broker_process import BrokerProcess
from scripts.benchmarks.figures import LIMIT, LIMIT_ON_DISK


class LimitSubject:
    """A process of `answering_limit`: it has nothing that would have to get warm."""

    can_be_launched = True
    is_to_be_warmed = False

    def __init__(self, *, is_synced: bool = False) -> None:
        self.name = LIMIT_ON_DISK if is_synced else LIMIT
        self._is_synced = is_synced

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> BrokerProcess:
        """It has no settings."""
        address = ("127.0.0.1", free_port())
        command = [
            *(sys.executable, "-m", "scripts.benchmarks.answering_limit"),
            *("--listener", "{}:{}".format(*address), "--data-dir", str(data_directory)),
        ]
        if self._is_synced:
            command.append("--sync")
        return BrokerProcess(address, command, data_directory.with_name(f"{data_directory.name}.limit.log"))
