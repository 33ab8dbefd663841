"""Turns at work that takes long, such as the hash of a password: each address has its share, and in it each name.

So a client that tries many passwords delays its own address only, and there first those with the name that it tries.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.security.sasl.exchange import TooManyWaitingError

MAXIMUM_WAITING: Final = 128
"""Callers of one address. With 25 ms for each turn, the last one waits for three seconds of its ten."""


class FairTurns:
    """At most `count` turns at a time. Addresses are served one after the other, and so are the names of an address."""

    __slots__ = ("_free_count", "_waiting", "_waiting_counts")

    def __init__(self, count: int) -> None:
        self._free_count = count
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()
        self._waiting_counts: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, host: str, name: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it in the context. Raises TooManyWaitingError."""
        if self._free_count and not self._waiting:
            self._free_count -= 1
        else:
            await self._wait(network_of(host), name)
        try:
            yield
        finally:
            self._free_count += 1
            self._give()

    async def _wait(self, network: str, name: str) -> None:
        count = self._waiting_counts.get(network, 0)
        if count >= MAXIMUM_WAITING:
            raise TooManyWaitingError
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, OrderedDict()).setdefault(name, deque()).append(given)
        self._waiting_counts[network] = count + 1
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                names = self._waiting.get(network)
                if names is not None and given in names.get(name, ()):  # else it was next in this turn of the loop
                    names[name].remove(given)
                    self._left(network, name)
            else:  # it was given its turn, and did not run since
                self._free_count += 1
                self._give()
            raise

    def _give(self) -> None:
        """Give the free turns to the next ones that wait."""
        while self._free_count and self._waiting:
            network, names = next(iter(self._waiting.items()))
            name, waiting = next(iter(names.items()))
            given = waiting.popleft()
            names.move_to_end(name)
            self._waiting.move_to_end(network)
            self._left(network, name)
            if not given.done():
                self._free_count -= 1
                given.set_result(None)

    def _left(self, network: str, name: str) -> None:
        names = self._waiting[network]
        if not names[name]:
            del names[name]
        if not names:
            del self._waiting[network]
        self._waiting_counts[network] -= 1
        if not self._waiting_counts[network]:
            del self._waiting_counts[network]
