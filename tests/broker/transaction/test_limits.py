"""Limits of the coordinator's decisions: when an id expires, and which version a level means."""

from __future__ import annotations

import pytest

from fencepost.broker.transaction.limits import TransactionLimits, version_of
from fencepost.broker.transaction.metadata import new_transaction
from fencepost.broker.transaction.state_machine import TransactionVersion


@pytest.mark.parametrize(("name", "expires_ms"), [("orders", 20_000), ("sink-1", 12_000)])
def test_an_id_expires_at_a_multiple_of_the_interval_after_the_time_for_which_its_name_is_kept(
    name: str, expires_ms: int
) -> None:
    limits = TransactionLimits(
        transactional_id_expiration_ms=9_500, expiry_interval_ms=1_000, expirations_by_name=[("sink-*", 1_001)]
    )
    unused = new_transaction(name, producer_id=1, timeout_ms=60_000, now_ms=10_500)
    assert limits.expires_ms(unused) == expires_ms


def test_levels_below_two_are_version_one() -> None:
    assert [version_of(level) for level in (0, 1, 2)] == [
        TransactionVersion.V1,
        TransactionVersion.V1,
        TransactionVersion.V2,
    ]
