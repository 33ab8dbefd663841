"""The audit log: one event for a refusal in each interval, a bounded number of them, and one for each changed rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.events import events_to
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.audit import INTERVAL_MS, MAXIMUM_REFUSALS, Audit
from fencepost.broker.security.authorizer import Authorizer
from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.handler_context import ManualClock
from tests.support.secured_broker import ADMIN, ALICE, secured_broker

Events = list[dict[str, Any]]


@pytest.fixture
def events() -> Iterator[Events]:
    found: Events = []

    def take(logger: str, level: str, event: Any) -> None:
        if logger == "broker.security.audit":
            found.append({"level": level, **event})

    with events_to(take):
        yield found


def test_a_refusal_that_repeats_is_logged_once_in_an_interval_and_then_counted(events: Events) -> None:
    clock = ManualClock()
    audit = Audit(clock)
    rights = Authorizer().rights(ALICE, "10.0.0.1")
    for _ in range(5):
        audit.refused(rights, "Fetch", (AclOperation.READ, AclResource.TOPIC, "orders"))
    assert events == [
        {
            "level": "info",
            "event": "refused",
            "principal": ALICE,
            "host": "10.0.0.1",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "api": "Fetch",
        }
    ]
    clock.time_ms += INTERVAL_MS
    audit.refused(rights, "Fetch", (AclOperation.READ, AclResource.TOPIC, "orders"))
    assert [event["event"] for event in events] == ["refused", "refusals_left_out", "refused"]
    assert events[1]["count"] == 4


def test_a_client_that_tries_many_names_does_not_fill_the_log(events: Events) -> None:
    clock = ManualClock()
    audit = Audit(clock)
    rights = Authorizer().rights(ALICE, "10.0.0.1")
    for number in range(10 * MAXIMUM_REFUSALS):
        audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{number}"))
    assert len(events) == MAXIMUM_REFUSALS
    clock.time_ms += INTERVAL_MS
    audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, "t"))
    assert events[-2]["count"] == 9 * MAXIMUM_REFUSALS


async def test_changes_of_rules_and_refused_requests_are_in_the_log(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.admin.call(CreateAclsRequest([AclCreation(2, "orders", 4, ALICE, "*", 3, 3)] * 2))
        await broker.admin.call(DeleteAclsRequest([DeleteAclsFilter(2, None, 1, None, None, 1, 1)] * 2))
        await broker.alice.call(MetadataRequest([MetadataRequestTopic(name="orders")]))
        await broker.alice.call(MetadataRequest(None))  # what is only left out of a list is no refusal
    host = "192.0.2.1"
    changed = {"level": "info", "principal": ADMIN, "host": host, "rule": f"allow {ALICE} from * READ on topic orders*"}
    assert events == [
        {**changed, "event": "acl_added"},
        {**changed, "event": "acl_removed"},
        {
            "level": "info",
            "event": "refused",
            "principal": ALICE,
            "host": host,
            "operation": "DESCRIBE",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "api": "Metadata",
        },
    ]
