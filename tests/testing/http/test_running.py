"""How operations are carried out; `test_app` has them all over HTTP."""

from __future__ import annotations

import pytest

from fencepost.testing.http import running
from fencepost.testing.http.brokers import Brokers, NoSuchBrokerError


def test_a_broker_is_created_used_and_closed() -> None:
    brokers = Brokers()
    created = running.create_broker(brokers, {"settings": None, "process": False})
    named = {"broker": created["broker"]}
    assert running.broker(brokers, named) == created
    assert running.topic(brokers, {**named, "name": "orders", "partitions": 3, "configs": None}) == {"name": "orders"}
    assert running.topics(brokers, named) == {"topics": {"orders": 3}}
    assert running.faults(brokers, named) == {"faults": []}
    assert running.program(brokers, {})["brokers"] == 1
    assert running.close_broker(brokers, {**named, "keep": False})["never_fired"] == []
    with pytest.raises(NoSuchBrokerError):
        running.topics(brokers, named)
    assert running.brokers(brokers, {}) == {"brokers": []}
