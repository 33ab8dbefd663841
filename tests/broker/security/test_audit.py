"""The audit log: one event for a refusal in each interval, a bounded number of them, and one for each changed rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.events import events_to
from fencepost.broker.kernel.log_limit import FULL_SHARES, MAXIMUM_SHARES, SHARE, WINDOW_S
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.audit import MAXIMUM_NAME_CHARACTERS, Audit
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.handler_context import ManualClock
from tests.support.secured_broker import ADMIN, ALICE, secured_broker

Events = list[dict[str, Any]]
INTERVAL_MS = round(1_000 * WINDOW_S)


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
    for number in range(10 * SHARE):
        audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{number}"))
    assert len(events) == SHARE
    clock.time_ms += INTERVAL_MS
    audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, "t"))
    assert events[-2] == {"level": "info", "event": "refusals_left_out", "count": 9 * SHARE, "principal": ALICE}


@pytest.mark.parametrize(
    "others", [[ADMIN], ["User:bob", ADMIN], [f"User:u{number}" for number in range(2 * FULL_SHARES)]]
)
def test_a_client_that_tries_many_names_hides_nobody_elses_refusal(events: Events, others: list[str]) -> None:
    audit = Audit(ManualClock())
    for principal in (ALICE, *others):
        rights = Authorizer().rights(principal, "10.0.0.1")
        for number in range(10 * SHARE):
            audit.refused(rights, "ListOffsets", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{number}"))
    assert {event["principal"] for event in events} == {ALICE, *others}
    assert len(events) <= FULL_SHARES * SHARE + MAXIMUM_SHARES


def test_clients_that_have_not_authenticated_have_a_share_for_each_address(events: Events) -> None:
    audit = Audit(ManualClock())
    for host in ("10.0.0.1", "2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1", "10.0.0.2"):
        rights = Authorizer().rights(ANONYMOUS, host)
        for number in range(10 * SHARE):
            audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{number}"))
    assert [event["host"] for event in events] == [
        *["10.0.0.1"] * SHARE,
        *["2001:db8::1"] * SHARE,
        *["10.0.0.2"] * SHARE,
    ]


def test_very_many_principals_do_not_fill_the_log(events: Events) -> None:
    clock = ManualClock()
    audit = Audit(clock)
    for number in range(3 * MAXIMUM_SHARES):
        rights = Authorizer().rights(f"User:u{number}", "10.0.0.1")
        for name in range(SHARE + 1):
            audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{name}"))
    logged_count = len(events)
    assert logged_count == FULL_SHARES * SHARE + MAXIMUM_SHARES - FULL_SHARES
    clock.time_ms += INTERVAL_MS
    audit.refused(Authorizer().rights(ALICE, "10.0.0.1"), "Fetch", (AclOperation.READ, AclResource.TOPIC, "t"))
    left_out = events[logged_count:-1]
    assert len(left_out) < 30
    assert sum(event["count"] for event in left_out) == 3 * MAXIMUM_SHARES * (SHARE + 1) - logged_count
    assert left_out[-1]["principal"] == "others"


def test_long_names_are_cut_with_a_mark(events: Events) -> None:
    audit = Audit(ManualClock())
    name = "n" * 20_000
    rights = Authorizer().rights("User:" + name, "10.0.0.1")
    audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, name))
    assert events[0]["resource_name"] == "n" * MAXIMUM_NAME_CHARACTERS + "… (20000 characters)"
    assert events[0]["principal"].endswith("… (20005 characters)")


def test_a_clock_that_goes_back_stops_no_audit(events: Events) -> None:
    clock = ManualClock()
    audit = Audit(clock)
    rights = Authorizer().rights(ALICE, "10.0.0.1")
    for _ in range(2):
        for number in range(2 * SHARE):
            audit.refused(rights, "Metadata", (AclOperation.DESCRIBE, AclResource.TOPIC, f"t{number}"))
        clock.time_ms -= 3_600_000
    assert [event["event"] for event in events].count("refused") == 2 * SHARE


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
