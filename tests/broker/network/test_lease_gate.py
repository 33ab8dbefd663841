"""A node that may have lost its lease does not answer as a leader; what the store guards is answered all the same."""

from __future__ import annotations

import pytest

from fencepost.broker.network.lease_gate import LeaseGate
from fencepost.broker.requests.api import APIS, CloseConnection
from fencepost.protocol.api_keys import ApiKey


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT])
def test_answers_of_leaders_and_coordinators_need_the_lease(key: ApiKey) -> None:
    assert APIS[key].needs_lease


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_LOG_DIRS])
def test_acknowledged_writes_and_answers_of_the_store_need_no_lease(key: ApiKey) -> None:
    assert not APIS[key].needs_lease


def test_an_answer_passes_while_the_lease_is_held() -> None:
    is_held = True
    gate = LeaseGate(lambda: is_held)
    gate.require_lease()
    is_held = False
    with pytest.raises(CloseConnection, match="may have lost its lease"):
        gate.require_lease()
