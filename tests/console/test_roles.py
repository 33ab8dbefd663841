"""Roles by the values of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.console.roles import Role, claim_values, highest_role

ROLES = {Role.VIEWER: frozenset({"staff"}), Role.ADMIN: frozenset({"kafka-admins", "root"})}


@pytest.mark.parametrize(
    ("values", "role"),
    [
        (["staff"], Role.VIEWER),
        (["staff", "root"], Role.ADMIN),
        (["operators", "Staff", "staff "], None),
        ([], None),
    ],
)
def test_a_person_has_the_highest_role_of_the_claims_values_and_none_without_one(
    values: list[str], role: Role | None
) -> None:
    assert highest_role(values, ROLES) is role


def test_a_role_includes_those_before_it() -> None:
    assert Role.ADMIN.includes(Role.OPERATOR)
    assert Role.OPERATOR.includes(Role.OPERATOR)
    assert not Role.VIEWER.includes(Role.OPERATOR)


@pytest.mark.parametrize(
    ("path", "claims", "values"),
    [
        ("groups", {"groups": ["a", "b"]}, {"a", "b"}),
        ("realm_access.roles", {"realm_access": {"roles": ["a", 7, None]}}, {"a"}),
        ("https://example.com/roles", {"https://example.com/roles": ["a"]}, {"a"}),
        ("role", {"role": "not admin"}, {"not admin"}),
        ("scope", {"scope": "openid kafka"}, {"openid", "kafka"}),
        ("groups", {}, set()),
        ("groups.a", {"groups": ["a"]}, set()),
        ("groups", {"groups": {"a": True}}, set()),
        ("groups", {"groups": True}, set()),
    ],
)
def test_values_are_found_by_the_path_of_a_claim(path: str, claims: dict[str, Any], values: set[str]) -> None:
    assert claim_values(claims, path) == values
