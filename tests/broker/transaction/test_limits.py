"""Limits of the coordinator's decisions."""

from __future__ import annotations

from fencepost.broker.transaction.limits import version_of
from fencepost.broker.transaction.state_machine import TransactionVersion


def test_levels_below_two_are_version_one() -> None:
    assert [version_of(level) for level in (0, 1, 2)] == [
        TransactionVersion.V1,
        TransactionVersion.V1,
        TransactionVersion.V2,
    ]
