"""How long clients wait after a machine of a cluster has vanished without a word, with their defaults.

    .venv/bin/python -m scripts.cluster_vanished [CLIENT…] [--lost NODE…]

Three brokers run in network namespaces, which takes root; all packets of one are dropped. Prints rows of
docs/performance/cluster.md: seconds until each part of each client has done its work for all partitions again. The
clients are those of `tests.support.steady_clients`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.clients_of_processes import SETTINGS
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.remote_machines import remote_machines
from tests.support.steady_clients import COMMANDS, PARTS, steady_clients, waited_s

LONGEST_S = 600.0


def measure(database: PostgresServer, names: Sequence[str], lost: int) -> None:
    """Lose one machine under some clients, and print what each waited."""
    with (
        tempfile.TemporaryDirectory() as directory,
        remote_machines(database, Path(directory), settings=dict(SETTINGS)) as remote,
        steady_clients(remote.machines.bootstrap, names, Path(directory)) as clients,
    ):
        lost_s = time.time()
        remote.network.lose(lost)
        try:
            while time.time() < lost_s + LONGEST_S:
                waits = waited_s(clients, lost_s)
                if all(None not in parts.values() for parts in waits.values()):
                    break
                time.sleep(0.5)
        finally:
            remote.network.find(lost)
    for name, parts in waits.items():
        cells = [f"more than {LONGEST_S:.0f}" if wait_s is None else f"{wait_s:.0f}" for wait_s in parts.values()]
        print(f"| {name} | {lost} | {' | '.join(cells)} | {os.getloadavg()[0]:.0f} |", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", choices=[*COMMANDS, []], help="which clients; by default all")
    parser.add_argument("--lost", nargs="*", type=int, default=[1, 2, 3], help="which machines, one after the other")
    options = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "tests")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "not checked")
    print(f"| client | lost | {' | '.join(PARTS)} | load |\n|{'---|' * (len(PARTS) + 3)}")
    for lost in options.lost:
        with postgres_server(is_durable=True) as database:
            measure(database, options.clients or list(COMMANDS), lost)


if __name__ == "__main__":
    main()
