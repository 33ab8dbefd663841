"""Principals as rules mention them."""

from __future__ import annotations

import pytest

from fencepost.broker.security.principal import ANONYMOUS, NODE, principal_problem, user_principal


def test_no_user_is_the_principal_of_a_node() -> None:
    assert user_principal("alice") == "User:alice"
    assert user_principal("ANONYMOUS") == ANONYMOUS
    assert NODE.partition(":")[0] != "User"


@pytest.mark.parametrize(
    ("text", "is_principal"), [("User:alice", True), ("User:", True), ("alice", False), ("", False)]
)
def test_a_principal_has_a_type_and_a_name(text: str, *, is_principal: bool) -> None:
    assert (principal_problem(text) is None) is is_principal
