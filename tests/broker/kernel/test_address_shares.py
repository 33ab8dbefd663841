"""Shares of addresses: who holds most gives up first, and the oldest of it."""

from __future__ import annotations

from fencepost.broker.kernel.address_shares import AddressShares


def test_the_address_that_holds_most_gives_up_its_oldest_first() -> None:
    shares: AddressShares[str] = AddressShares()
    assert shares.oldest_of_greediest() is None
    for name, host, size in (("a", "10.0.0.1", 5), ("b", "10.0.0.2", 3), ("c", "10.0.0.2", 3), ("d", "10.0.0.3", 1)):
        shares.hold(name, host, size)
    assert (len(shares), shares.size) == (4, 12)
    order = []
    while (oldest := shares.oldest_of_greediest()) is not None:
        order.append(oldest)
        shares.release(oldest)
    assert order == ["b", "a", "c", "d"]
    assert (len(shares), shares.size, shares.holders()) == (0, 0, [])


def test_a_size_may_change_and_a_holder_may_leave_twice() -> None:
    shares: AddressShares[str] = AddressShares()
    shares.hold("a", "10.0.0.1", 5)
    shares.hold("b", "10.0.0.2", 3)
    shares.hold("b", "10.0.0.2", 30)
    assert (shares.size, shares.oldest_of_greediest()) == (35, "b")
    for _ in range(2):
        shares.release("b")
    assert (shares.size, shares.oldest_of_greediest()) == (5, "a")


def test_a_network_of_ipv6_is_one_address() -> None:
    shares: AddressShares[int] = AddressShares()
    shares.hold(0, "2001:db8:1::1", 2)
    for number in range(1, 4):
        shares.hold(number, f"2001:db8::{number}")
    assert shares.oldest_of_greediest() == 1
