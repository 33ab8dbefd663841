"""A node that may have lost its lease does not answer as a leader; what the store guards is answered all the same."""

from __future__ import annotations

import pytest

from fencepost.broker.network.lease_gate import ANSWERED_WITHOUT_LEASE, LeaseGate
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT])
def test_answers_of_leaders_and_coordinators_are_guarded(key: ApiKey) -> None:
    assert LeaseGate(lambda: True).guards(key)


def test_acknowledged_writes_and_answers_of_the_store_are_not_guarded() -> None:
    gate = LeaseGate(lambda: True)
    assert not any(gate.guards(key) for key in ANSWERED_WITHOUT_LEASE)
    assert set(SERVED) >= ANSWERED_WITHOUT_LEASE


def test_an_answer_passes_while_the_lease_is_held() -> None:
    is_held = True
    gate = LeaseGate(lambda: is_held)
    gate.require_lease()
    is_held = False
    with pytest.raises(CloseConnection, match="may have lost its lease"):
        gate.require_lease()
