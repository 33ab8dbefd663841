"""Entities of quotas, and the quota that applies to a client."""

from __future__ import annotations

import pytest

from fencepost.broker.quotas.entities import (
    Entity,
    EntityFilter,
    FilterComponent,
    QuotaKey,
    check_entity,
    check_filter,
    check_quota,
    entity_of,
    limit_for,
)
from fencepost.protocol.errors import ErrorCode

ALICE = entity_of([("user", "alice")])
RATE = QuotaKey.PRODUCER_BYTE_RATE


def test_parts_are_sorted_and_addresses_have_one_form() -> None:
    assert entity_of([("user", "a"), ("client-id", None)]) == (("client-id", None), ("user", "a"))
    assert entity_of([("ip", "0:0:0:0:0:0:0:1")]) == entity_of([("ip", "::1")])


@pytest.mark.parametrize("parts", [[], [("color", "red")], [("user", "")], [("ip", "::1"), ("user", "a")]])
def test_an_entity_that_cannot_have_quotas_is_refused(parts: list[tuple[str, str | None]]) -> None:
    assert check_entity(entity_of(parts)) is not None
    assert check_entity(ALICE) is None


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        (RATE, 1024.0, False),
        (RATE, 0.0, True),
        (RATE, float("nan"), True),
        (RATE, 1.5, True),
        (QuotaKey.REQUEST_PERCENTAGE, 1.5, False),
        (QuotaKey.CONNECTION_CREATION_RATE, 5.0, True),
        ("no_such_rate", 5.0, True),
    ],
)
def test_a_quota_of_a_user_is_checked(key: str, value: float, *, is_refused: bool) -> None:
    assert (check_quota(ALICE, key, value) is not None) is is_refused


def test_the_most_specific_quota_applies_and_says_who_shares_it() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        entity_of([("user", None)]): {RATE: 1.0},
        entity_of([("client-id", "c")]): {RATE: 2.0},
    }
    found = limit_for(quotas, RATE, user="alice", client_id="c")
    assert found == (ALICE, 1.0)
    both = entity_of([("user", "alice"), ("client-id", "c")])
    assert limit_for(quotas | {both: {RATE: 3.0}}, RATE, user="alice", client_id="c") == (both, 3.0)
    assert limit_for({}, RATE, user="alice", client_id="c") is None


def test_a_strict_filter_leaves_out_entities_with_other_parts() -> None:
    both = entity_of([("user", "alice"), ("client-id", "c")])
    component = FilterComponent("user", 0, "alice")
    assert EntityFilter([component], strict=False).matches(both)
    assert not EntityFilter([component], strict=True).matches(both)
    assert EntityFilter([FilterComponent("user", 2, None)], strict=True).matches(ALICE)


def test_a_filter_that_contradicts_itself_is_refused_with_kafkas_errors() -> None:
    refused = check_filter([FilterComponent("user", 0, None)])
    assert refused is not None
    assert refused.error == ErrorCode.INVALID_REQUEST
    unknown = check_filter([FilterComponent("color", 2, None)])
    assert unknown is not None
    assert unknown.error == ErrorCode.UNSUPPORTED_VERSION
    assert check_filter([FilterComponent("user", 2, None)]) is None
