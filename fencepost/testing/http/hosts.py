"""Addresses that no other machine reaches, and requests that no page in a browser can have sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and cannot be reached from others."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def page_refusal(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Status and reason to refuse a request that a page in a browser may have sent; None for any other.

    headers: names in lower case, and values. A page of another site cannot leave out `Origin`, except where it reads;
    `Host` has the name of its site, also if that was made to point here (DNS rebinding).
    """
    name = host_name(headers.get("host", ""))
    if not is_loopback(name):
        return 421, f"the Host header names {name!r}: ask by 127.0.0.1, localhost or [::1]"
    if "origin" in headers:
        return 403, "the request has an Origin header, as those of web pages have: send it from a program, without one"
    if headers.get("sec-fetch-site", "none") != "none":
        return 403, "the request comes from a web page: send it from a program"
    return None
