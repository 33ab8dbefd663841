"""A Kafka that is not ours, for the tests that need no more of it than the protocol: `--fencepost-url`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from fencepost.testing.errors import MisuseError
from fencepost.testing.methods import BrokerMethods
from fencepost.testing.results import Group


def _raise(reason: str) -> NoReturn:
    raise MisuseError(reason)


class RemoteBroker(BrokerMethods):
    """The cluster at an address. At its end, the topics that it created and the groups that it named are deleted.

    refuse: function that must raise; it gets a sentence on an operation that only a broker of ours supports.
    """

    keeps_requests = False

    def __init__(self, bootstrap_servers: str, *, refuse: Callable[[str], NoReturn] = _raise) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers
        self._refuse = refuse
        self._created: set[str] = set()
        self._groups: set[str] = set()

    @property
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, object] | None = None) -> str:
        created = super().topic(name, partitions=partitions, configs=configs)
        self._created.add(created)
        return created

    def group(self, group_id: str) -> Group:
        self._groups.add(group_id)
        return super().group(group_id)

    def set_offset(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        self._groups.add(group)
        super().set_offset(group, topic, offset, partition=partition)

    def wait_for_lag(self, group: str, lag: int = 0, *, topic: str | None = None, timeout: float = 10.0) -> None:
        self._groups.add(group)
        super().wait_for_lag(group, lag, topic=topic, timeout=timeout)

    def crash(self) -> None:
        self._refuse_command("crash")

    def restart(self) -> None:
        self._refuse_command("restart")

    def close(self) -> None:
        """Delete the test's topics and groups."""
        try:
            if self._created:
                self._wire().delete_topics(self._created)
            if self._groups:
                self._wire().delete_groups(self._groups)
        finally:
            self._created.clear()
            self._groups.clear()
            self.close_helpers()

    def data_to_keep(self) -> None:
        """There are none here."""

    def run_command(self, command: str, *arguments: Any) -> Any:
        if command == "requests" and self.faults == []:
            self._refuse_command("requests")
        self._refuse_command({"turn": "advance", "place": "a fault"}.get(command, command))

    def _refuse_command(self, what: str) -> NoReturn:
        self._refuse(f"{what} needs a broker of Fencepost's: run the test without --fencepost-url")
        raise AssertionError("unreachable")
