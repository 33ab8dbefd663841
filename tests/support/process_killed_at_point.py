"""Serves as `fencepost serve --processes N` does, and one of the processes kills itself with SIGKILL at a named point
of a move or a take-over: `python -m tests.support.process_killed_at_point ORDER ARGUMENT…`.

ORDER is a file, as in `killed_at_point`. The parent starts this program for each process, too: with `--process`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.support.killed_at_point import CLUSTER, Order, Point, watch

COORDINATION: Final = "fencepost.broker.coordination.runtime"
LOGS: Final = "fencepost.broker.log.directory.log_directory"
MEMBER: Final = f"{CLUSTER}.processes.process_member"
DIRECTORIES: Final = f"{CLUSTER}.processes.node_directories"
AS_PROCESS: Final = "--process"
NODE_PROCESS: Final = "fencepost.broker.process.node_process"

POINTS: Final = {
    "before logs are closed to move": Point("before", LOGS, "LogDirectory.close_to_move"),
    "while logs are closed to move": Point("sent", LOGS, "LogDirectory.close_to_move"),
    "after logs are closed to move": Point("after", LOGS, "LogDirectory.close_to_move"),
    "while a move is stored": Point("sent", f"{CLUSTER}.leases.lease_store", "LeaseStore.move"),
    "after a move is stored": Point("after", f"{CLUSTER}.leases.lease_store", "LeaseStore.move"),
    "before a take-over is stored": Point("before", MEMBER, "ProcessMember._take_over"),
    "while a take-over is stored": Point("sent", MEMBER, "ProcessMember._take_over"),
    "after a take-over is stored": Point("after", MEMBER, "ProcessMember._take_over"),
    "before a directory is renamed": Point("before", DIRECTORIES, "NodeDirectories._prepare"),
    "after a directory is renamed": Point("after", DIRECTORIES, "NodeDirectories._prepare"),
    "before logs are opened": Point("after", DIRECTORIES, "NodeDirectories.prepare"),
    "after logs are opened": Point("after", "fencepost.broker.hosting.hosted_logs", "HostedLogs.lead"),
    "before a coordinator is loaded": Point("before", COORDINATION, "CoordinatorRuntime._load"),
    "after a coordinator is loaded": Point("after", COORDINATION, "CoordinatorRuntime._load"),
}


def start_processes_so(order: str) -> None:
    """Have the parent start this program in place of each process."""
    start = asyncio.create_subprocess_exec

    async def start_watched(*command: Any, **named: Any) -> Any:
        python, *program, specification = command
        assert program == ["-m", NODE_PROCESS], program
        return await start(python, "-m", __spec__.name, order, AS_PROCESS, specification, **named)

    patch.object(asyncio, "create_subprocess_exec", start_watched).start()


if __name__ == "__main__":
    _, order, *arguments = sys.argv
    if arguments[0] == AS_PROCESS:
        watch(Order(Path(order)), POINTS)
        sys.argv = arguments
        from fencepost.broker.process.node_process import main
    else:
        start_processes_so(order)
        sys.argv = ["fencepost", *arguments]
        from fencepost.cli.main import main
    main()
