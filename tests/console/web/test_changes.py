"""Changes are confirmed by typing a name."""

from __future__ import annotations

import pytest

from fencepost.console.web.changes import LONGEST_TYPED, Change, field_of
from fencepost.console.web.visit import BadFormError


async def nothing() -> str:
    return ""


@pytest.mark.parametrize("subject", ["orders", "a group with blanks", "Zoë"])
def test_the_name_of_the_subject_is_to_be_typed(subject: str) -> None:
    assert Change("Delete", subject, (), nothing, "/", "/").to_type == subject


@pytest.mark.parametrize("subject", ["", " orders", "orders\n", "a\u202eb", "x" * (LONGEST_TYPED + 1)])
def test_a_name_that_cannot_be_typed_is_replaced_by_a_word(subject: str) -> None:
    assert Change("Delete", subject, (), nothing, "/", "/").to_type == "confirm"


def test_a_field_is_stripped_and_must_not_be_empty() -> None:
    assert field_of({"topic": " orders "}, "topic", "the name") == "orders"
    for form in ({}, {"topic": "  "}):
        with pytest.raises(BadFormError, match="the name is missing"):
            field_of(form, "topic", "the name")
