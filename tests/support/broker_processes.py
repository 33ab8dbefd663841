"""A broker of several processes, for tests: which process is which node, and ways to hurt a single one."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient

from fencepost.soak.free_port import free_ports
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import PATIENCE_S


class BrokerProcesses(BrokerProcess):
    """The parent, as `BrokerProcess` has it, and its processes: node 1 on `port`, the others on the ports after it."""

    def __init__(
        self,
        data_directory: Path,
        count: int,
        *,
        settings: Mapping[str, str] | None = None,
        config: Path | None = None,
    ) -> None:
        super().__init__(data_directory, settings=settings, config=config, arguments=("--processes", str(count)))
        self.count = count
        self.port = free_ports(count)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node_id) for node_id in self.node_ids)

    @property
    def node_ids(self) -> range:
        return range(1, self.count + 1)

    def address(self, node_id: int) -> str:
        return f"{self.host}:{self.port + node_id - 1}"

    def process_of(self, node_id: int) -> int:
        """The id of the process that was started last for a node."""
        return int(re.findall(rf"process_started +node={node_id} pid=(\d+)", self.output)[-1])

    def kill_node(self, node_id: int) -> int:
        """kill -9 of one process; returns its id."""
        process_id = self.process_of(node_id)
        os.kill(process_id, signal.SIGKILL)
        return process_id

    def freeze_node(self, node_id: int) -> int:
        """SIGSTOP of one process; returns its id."""
        process_id = self.process_of(node_id)
        os.kill(process_id, signal.SIGSTOP)
        return process_id

    def wait_for_another(self, node_id: int, than: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until another process serves a node."""
        deadline = time.monotonic() + timeout_s
        while self.process_of(node_id) == than:
            assert time.monotonic() < deadline, f"node {node_id} was not started again:\n{self.output}"
            time.sleep(0.05)

    def wait_for_answer(self, node_id: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a node answers requests."""
        AdminClient({"bootstrap.servers": self.address(node_id), "log_level": 0}).list_topics(timeout=timeout_s)

    def is_alive(self, process_id: int) -> bool:
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0]
        except FileNotFoundError:
            return False
        return state not in "ZX"
