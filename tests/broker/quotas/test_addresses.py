"""Addresses of the hosts that quotas name."""

from __future__ import annotations

from fencepost.broker.quotas.addresses import address_of


async def test_addresses_have_one_form_and_are_not_looked_up() -> None:
    assert await address_of("127.0.0.1") == "127.0.0.1"
    assert await address_of("0:0:0:0:0:0:0:1") == await address_of("::1") == "::1"


async def test_a_host_that_cannot_be_has_no_address() -> None:
    assert await address_of("a" * 300) is None
