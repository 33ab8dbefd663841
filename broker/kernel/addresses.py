"""Addresses of clients, as those that share one bound: an IPv4 address, or a network of IPv6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import ipaddress
else:
    ipaddress = lazy_module("ipaddress")


def network_of(host: str) -> str:
    """The address of a host; of an IPv6 address its network of 64 bits, of which one host may have all addresses."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
