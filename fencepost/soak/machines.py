"""The cluster under test: brokers as on several machines, and the PostgreSQL and the object store that they share.

PostgreSQL has a synchronous standby, and brokers the addresses of both. Each of them is killed, frozen and restarted by
itself. As with `Broker`, no method waits but `spawn`, the first time.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fencepost.soak import busy_objects
from fencepost.soak.broker import Broker
from fencepost.soak.busy_objects import NO_TROUBLE, Trouble, set_trouble
from fencepost.soak.free_port import free_port
from fencepost.soak.holdings import Holdings, files_in, resident_bytes_of, rows_of
from fencepost.soak.pieces import POSTGRES
from fencepost.soak.postgres_pair import PostgresPair
from fencepost.soak.process_family import freeze_family, thaw
from fencepost.soak.trial_services import Service, trial_objects

COMMAND_TIMEOUT_S = 60.0
ALL_ALIVE_TIMEOUT_S = 60.0
LOOK_S = 0.5


class Machines:
    """directory: gets a scratch directory and a log file for each broker, and the data of the stores. These continue
    the data that they find.

    settings: Kafka settings of all brokers. count: of the brokers, whose node ids begin with 1.
    held:     nodes with a fault, which may be down.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], *, count: int) -> None:
        self.held: set[int] = set()
        self.databases = PostgresPair(directory, "postgres", kept=directory / POSTGRES)
        self.objects: Service
        self._directory = directory
        self._objects_directory = directory / "objects"
        self._arguments: list[str] = []  # known once the stores run
        self._brokers = {
            number: Broker(
                directory / f"scratch-{number}",
                directory / f"broker-{number}.log",
                {"node.id": str(number), **settings},
                arguments=self._arguments,
            )
            for number in range(1, count + 1)
        }
        self._stores = contextlib.ExitStack()
        self._frozen: dict[Service, list[int]] = {}
        self._outages: dict[Service, float] = {}  # when they began; of those that are under way
        self._outage_ended_at_s = 0.0

    def __getitem__(self, node_id: int) -> Broker:
        return self._brokers[node_id]

    # As a broker

    @property
    def node_ids(self) -> range:
        return range(1, len(self._brokers) + 1)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def log_paths(self) -> list[Path]:
        return [broker.log_path for broker in self._brokers.values()]

    @property
    def recoveries_s(self) -> list[float]:
        return [recovery_s for broker in self._brokers.values() for recovery_s in broker.recoveries_s]

    @property
    def is_ready(self) -> bool:
        """Whether all serve. Raises BrokerDiedError if one has ended by itself."""
        are_ready = [broker.is_ready for broker in self._brokers.values()]  # each notes how long it took
        return all(are_ready)

    def raise_if_ended(self) -> None:
        """Raise BrokerDiedError if one has ended by itself while it has no fault."""
        for node_id, broker in self._brokers.items():
            if node_id not in self.held:
                broker.raise_if_dead()

    def spawn(self) -> None:
        """Start all brokers, and the stores before, if they do not run. Raises TrialError if these do not start."""
        if not self._arguments:
            self._stores.callback(self.databases.close)
            self.databases.start()
            self._objects_directory.mkdir(exist_ok=True)
            set_trouble(self._objects_directory, NO_TROUBLE)
            self.objects = self._stores.enter_context(
                trial_objects(
                    self._objects_directory, free_port(), module=busy_objects.__name__, ends_with_parent=False
                )
            )
            self._arguments += ["--cluster", self.databases.url_of_both, "--objects", self.objects.url]
        for broker in self._brokers.values():
            broker.spawn()

    def kill(self) -> None:
        """Send SIGKILL to all brokers, also to frozen ones."""
        for broker in self._brokers.values():
            broker.kill()

    def close(self) -> None:
        """End the brokers and the stores."""
        self.kill()
        for service in list(self._frozen):
            self.thaw(service)
        self._stores.close()

    def holdings(self) -> Holdings:
        """Count the cluster's objects, rows, local files and memory."""
        objects, object_bytes = files_in([self._objects_directory / "buckets"])
        _, local_bytes = files_in(broker.data_directory for broker in self._brokers.values())
        return Holdings(
            objects,
            object_bytes,
            rows_of(self.databases.shell()),
            local_bytes,
            [resident_bytes_of(broker.process_id) for broker in self._brokers.values()],
        )

    # The stores

    def freeze(self, service: Service) -> None:
        """Send SIGSTOP to all processes of a store."""
        self.outage_begins(service)
        self._frozen[service] = freeze_family(service.process.pid)

    def thaw(self, service: Service) -> None:
        thaw(self._frozen.pop(service))
        self.outage_ends(service)

    def trouble_objects(self, trouble: Trouble) -> None:
        """Let the object store refuse requests, or not answer them."""
        self.outage_begins(self.objects)
        set_trouble(self._objects_directory, trouble)

    def end_trouble_of_objects(self) -> None:
        set_trouble(self._objects_directory, NO_TROUBLE)
        self.outage_ends(self.objects)

    def outage_begins(self, service: Service) -> None:
        """A store does not answer from now on."""
        self._outages[service] = time.monotonic()

    def outage_ends(self, service: Service) -> None:
        del self._outages[service]
        self._outage_ended_at_s = time.monotonic()

    def had_outage_since(self, moment_s: float) -> bool:
        """Whether a store is away, or was since then."""
        return bool(self._outages) or self._outage_ended_at_s > moment_s

    def cut_connections(self, share: float) -> list[str]:
        """The command that ends this share of PostgreSQL's sessions, by chance."""
        return self.databases.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
            f"AND pid <> pg_backend_pid() AND random() < {share}"
        )

    # At the end

    def problems(self) -> list[str]:
        """Return problems of the stores, by `fencepost cluster check`, and of the nodes: each must be alive."""
        command = [*(sys.executable, "-m", "fencepost", "cluster", "check"), *self._arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        found = [] if done.returncode == 0 else [f"cluster check: {done.stdout.strip()} {done.stderr.strip()}"]
        deadline_s = time.monotonic() + ALL_ALIVE_TIMEOUT_S
        while (states := self._states()) != dict.fromkeys(self.node_ids, "alive"):
            if time.monotonic() > deadline_s:
                found.append(f"not all nodes are alive {ALL_ALIVE_TIMEOUT_S:.0f} s after the last fault: {states}")
                break
            time.sleep(LOOK_S)
        return found

    def _states(self) -> dict[int, str]:
        command = [sys.executable, "-m", "fencepost", "cluster", "nodes", "--json", "-b", self.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        return {int(row["node"]): str(row["state"]) for row in json.loads(done.stdout)} if done.returncode == 0 else {}
