"""IP addresses of the hosts that quotas and limits name."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from fencepost.broker.kernel.addresses import canonical_host
from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import ipaddress
else:
    ipaddress = lazy_module("ipaddress")


async def address_of(host: str) -> str | None:
    """The address of a host, in its canonical form; None when it has none."""
    host = canonical_host(host)
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return None
    return canonical_host(str(found[0][4][0]))
