"""Shares of a bounded resource, by client address: the address with the most loses one first."""

from __future__ import annotations

from typing import Generic, TypeVar

from fencepost.broker.kernel.addresses import network_of

Holder = TypeVar("Holder")


class AddressShares(Generic[Holder]):
    """The holders of each address, such as connections, and their amounts, in any unit.

    size: the sum over all holders.
    """

    __slots__ = ("_holders", "_network_of", "_sizes", "size")

    def __init__(self) -> None:
        self.size = 0
        self._holders: dict[str, dict[Holder, int]] = {}  # in order of arrival
        self._sizes: dict[str, int] = {}
        self._network_of: dict[Holder, str] = {}

    def __len__(self) -> int:
        return len(self._network_of)

    def holders(self) -> list[Holder]:
        return list(self._network_of)

    def share_of(self, host: str) -> int:
        """The sum over all holders of an address."""
        return self._sizes.get(network_of(host), 0)

    def hold(self, holder: Holder, host: str, size: int = 1) -> None:
        """Set the amount of a holder; 0 removes it."""
        network = self._network_of.get(holder)
        if network is None:
            if not size:
                return
            network = self._network_of[holder] = network_of(host)
            self._holders.setdefault(network, {})
        holders = self._holders[network]
        change = size - holders.get(holder, 0)
        self.size += change
        self._sizes[network] = self._sizes.get(network, 0) + change
        if size:
            holders[holder] = size
            return
        del holders[holder], self._network_of[holder]
        if not holders:
            del self._holders[network], self._sizes[network]

    def release(self, holder: Holder) -> None:
        """Remove a holder, if it exists."""
        self.hold(holder, "", 0)

    def oldest_of_greediest(self) -> Holder | None:
        """The holder that came first, of the address that holds most; None without holders."""
        if not self._sizes:
            return None
        return next(iter(self._holders[max(self._sizes, key=self._sizes.__getitem__)]))
