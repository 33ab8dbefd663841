"""Machines on a network whose packets can be lost without a word: network namespaces, joined by bridges.

Each machine is in two networks: in one it meets the clients and the other machines, in the other one the stores. A plug
that is pulled stops all packets, in both directions. Nobody is sent a reset, an ICMP message or a refusal, and
addresses stay resolved, as behind a router.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Self

import pytest

from tests.support.missing_tools import require_tool

_numbers = itertools.count()
PEER, STORES = "peer", "stores"
"""The two networks."""
HOST = 1
"""This process's place in each network, and that of its programs."""
FIRST_MACHINE = 10


def require_network_namespaces() -> None:
    """Go on if this user may make network namespaces, as root may."""
    require_tool("ip")
    name = f"fp{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"network namespaces take root: {made.stderr.strip()}")
    _ip("netns", "del", name)


class Network:
    """The two networks, this process in both, and machines by their number."""

    def __init__(self, count: int) -> None:
        turn = next(_numbers)
        self._name = f"fp{os.getpid() % 100_000}{turn}"
        # Of the networks for tests of devices (RFC 2544), which nobody else has; other processes have others of them.
        third = (os.getpid() + turn) % 256
        self._networks = {PEER: f"198.18.{third}", STORES: f"198.19.{third}"}
        self._count = count

    def address(self, number: int) -> str:
        """The address of a machine, for clients and the other machines."""
        return f"{self._networks[PEER]}.{FIRST_MACHINE + number}"

    @property
    def stores(self) -> str:
        """This process's address where machines look for the stores."""
        return f"{self._networks[STORES]}.{HOST}"

    def launcher(self, number: int) -> Sequence[str]:
        """What to begin a command with, so that it runs on a machine."""
        return ("ip", "netns", "exec", self._machine(number))

    def lose(self, number: int, networks: Sequence[str] = (PEER, STORES)) -> None:
        """Lose all packets of a machine from now on, or those in some networks."""
        for network in networks:
            self._pull(network, self._plug(network, FIRST_MACHINE + number))

    def find(self, number: int) -> None:
        """Let the packets of a machine through again."""
        for network in self._networks:
            self._put(network, self._plug(network, FIRST_MACHINE + number))

    @contextmanager
    def without_stores(self) -> Iterator[None]:
        """Lose all packets between machines and stores until the block ends."""
        self._pull(STORES, self._plug(STORES, HOST))
        try:
            yield
        finally:
            self._put(STORES, self._plug(STORES, HOST))

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._remove)
            _ip("netns", "add", self._hub)
            for network in self._networks:
                self._in_hub("link", "add", network, "type", "bridge")
                self._in_hub("link", "set", network, "up")
                self._join(network, HOST, None)
            for number in range(1, self._count + 1):
                machine = self._machine(number)
                _ip("netns", "add", machine)
                _ip("-n", machine, "link", "set", "lo", "up")
                for network in self._networks:
                    self._join(network, FIRST_MACHINE + number, machine)
            self._resolve_all()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in (self._hub, *(self._machine(number) for number in range(1, self._count + 1))):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)

    @property
    def _hub(self) -> str:
        return f"{self._name}hub"

    def _machine(self, number: int) -> str:
        return f"{self._name}m{number}"

    def _plug(self, network: str, place: int) -> str:
        """The hub's end of the line to a place."""
        return f"{network[0]}{place}"

    def _port(self, network: str, place: int) -> str:
        """The place's own end."""
        return f"{self._name}{network[0]}" if place == HOST else network

    def _mac(self, network: str, place: int) -> str:
        _, second, third = map(int, self._networks[network].split("."))
        return f"02:00:5e:{second:02x}:{third:02x}:{place:02x}"

    def _join(self, network: str, place: int, machine: str | None) -> None:
        """Connect a place, which is in this process's namespace or in a machine's, to a network."""
        plug, port = self._plug(network, place), self._port(network, place)
        there = () if machine is None else ("netns", machine)
        here = () if machine is None else ("-n", machine)
        peer = ("peer", "name", port, "address", self._mac(network, place), *(there or ("netns", str(os.getpid()))))
        self._in_hub("link", "add", plug, "type", "veth", *peer)
        self._put(network, plug)
        self._in_hub("link", "set", plug, "up")
        _ip(*here, "address", "add", f"{self._networks[network]}.{place}/24", "dev", port)
        _ip(*here, "link", "set", port, "up")

    def _resolve_all(self) -> None:
        """Let everybody know everybody's hardware address for good: a lost machine is not even missed by ARP."""
        machines = {FIRST_MACHINE + number: self._machine(number) for number in range(1, self._count + 1)}
        for network, prefix in self._networks.items():
            for place, other in itertools.permutations((HOST, *machines), 2):
                here = () if place == HOST else ("-n", machines[place])
                known = ("lladdr", self._mac(network, other), "dev", self._port(network, place), "nud", "permanent")
                _ip(*here, "neighbour", "replace", f"{prefix}.{other}", *known)

    def _put(self, network: str, plug: str) -> None:
        self._in_hub("link", "set", plug, "master", network)

    def _pull(self, network: str, plug: str) -> None:
        # The line itself stays up, so neither end notices.
        self._in_hub("link", "set", plug, "nomaster")

    def _in_hub(self, *arguments: str) -> None:
        _ip("-n", self._hub, *arguments)


def _ip(*arguments: str) -> None:
    program = shutil.which("ip")
    assert program is not None
    subprocess.run([program, *arguments], check=True, capture_output=True)
