"""Requests for delegation tokens as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_token_may_be_for_another_owner_from_version_3_on() -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name="a",
        renewers=[CreatableRenewers(principal_type="User", principal_name="b")],
        max_lifetime_ms=-1,
    )
    assert_bytes(request, 3, "05 55 73 65 72 02 61 02 05 55 73 65 72 02 62 00 ff ff ff ff ff ff ff ff 00")


def test_a_token_is_named_by_its_hmac() -> None:
    request = RenewDelegationTokenRequest(hmac=b"\x01\x02", renew_period_ms=60000)
    assert_bytes(request, 1, "00 00 00 02 01 02 00 00 00 00 00 00 ea 60")


def test_all_tokens_are_asked_for_by_null() -> None:
    request = DescribeDelegationTokenRequest(owners=None)
    assert_bytes(request, 2, "00 00")
