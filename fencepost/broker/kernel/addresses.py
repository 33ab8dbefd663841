"""Addresses: the form that is compared with rules, quotas and limits, those that share one bound, this machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import ipaddress
else:
    ipaddress = lazy_module("ipaddress")


def canonical_host(host: str) -> str:
    """Return the one form of an address that is compared; any other text as it is.

    An IPv4 client of an IPv6 socket has the address `::ffff:10.0.0.7`, which is `10.0.0.7`. An IPv6 address is in small
    letters, short (`::1`, not Java's `0:0:0:0:0:0:0:1`), and without its zone (`%eth0`): zones are names of one
    machine's interfaces.
    """
    if ":" not in host:
        return host  # the system writes IPv4 addresses in one form only
    try:
        address = ipaddress.IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def network_of(host: str) -> str:
    """The address of a host; of an IPv6 address its network of 64 bits, of which one host may have all addresses."""
    host = canonical_host(host)
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(host)) >> 64 << 64))
    except ValueError:
        return host


def is_loopback(host: str) -> bool:
    """Whether a name, an address, or a directory of sockets is that of this machine on every machine."""
    if host.startswith("/") or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(canonical_host(host)).is_loopback
    except ValueError:
        return False
