"""How long clients of a cluster of machines wait when a broker is killed or frozen, again and again in one cluster.

    .venv/bin/python -m scripts.cluster_take_overs [kill] [freeze] [--quick]

Three brokers, PostgreSQL and an S3 server share this machine with the clients: a writer to 30 partitions and four
transactional producers with librdkafka's waits before it connects again, and as many with shorter ones. At the end all
records are read: none may be missing, twice, or of half a transaction. Prints tables of docs/cluster.md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from scripts.cluster_costs import machines, stores
from scripts.measured_parts import read_arguments
from tests.support.clients_of_processes import create, read
from tests.support.lost_brokers import Clients, Round, freeze_in_turn, kill_in_turn
from tests.support.machines import Machines

ROUNDS, FROZEN_S = 20, 30.0
QUICK_ROUNDS, QUICK_FROZEN_S = 2, 8.0
OF_EACH = {"defaults": {}, "500 ms": {"reconnect.backoff.max.ms": 500}}
OF_FREEZES = {"socket.timeout.ms": 4_000}
"""A frozen broker closes no connection: clients have to give up first."""

Rounds = Callable[[Machines, Sequence[Clients]], Iterator[Round]]


def measure(faults: Rounds, settings: dict[str, object]) -> None:
    """Run all rounds of one fault in a new cluster, and print how long the clients waited in each, and in all."""
    with stores() as kept, machines(kept) as cluster:
        create(cluster.bootstrap, "orders")
        found: list[Round] = []
        with ExitStack() as stack:
            clients = [
                stack.enter_context(Clients(cluster.bootstrap, name, settings | own)) for name, own in OF_EACH.items()
            ]
            for one in faults(cluster, clients):
                found.append(one)
                each = "; ".join(
                    f"{name}: acknowledged {waits.acknowledged_s:.2f} s, committed {waits.committed_s:.2f} s"
                    for name, waits in one.waits.items()
                )
                print(
                    f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.0f}, node {one.node_id}: {each}", flush=True
                )
        content = read(cluster.bootstrap)
        for each_clients in clients:
            each_clients.check(content)
    print("\n| clients | all partitions acknowledged again | all producers committed again |\n|---|---|---|")
    for name in OF_EACH:
        acknowledged = _spread([one.waits[name].acknowledged_s for one in found])
        committed = _spread([one.waits[name].committed_s for one in found])
        print(f"| {name} | {acknowledged} | {committed} |")
    print(f"\n{len(found)} rounds; nothing lost, doubled or torn")


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f} s, median {statistics.median(values):.1f} s"


def main() -> None:
    asked = read_arguments(__doc__, ("kill", "freeze"))
    rounds, frozen_s = (QUICK_ROUNDS, QUICK_FROZEN_S) if asked.is_quick else (ROUNDS, FROZEN_S)
    for name in asked.each():
        if name == "kill":
            measure(lambda cluster, clients: kill_in_turn(cluster, clients, rounds), {})
        else:
            measure(
                lambda cluster, clients: freeze_in_turn(cluster, clients, rounds, frozen_s=frozen_s), dict(OF_FREEZES)
            )


if __name__ == "__main__":
    main()
