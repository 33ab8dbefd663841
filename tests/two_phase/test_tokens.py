"""Tokens as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.two_phase import Token


@given(st.integers(0, 2**63 - 1), st.integers(0, 32766), st.text(min_size=1))
def test_a_token_is_read_from_its_text(producer_id: int, producer_epoch: int, transactional_id: str) -> None:
    token = Token(producer_id, producer_epoch, transactional_id)
    assert Token.parse(str(token)) == token


def test_a_token_begins_as_javas_state_of_a_prepared_transaction() -> None:
    assert str(Token(7, 0, "order-writer-1")) == "7:0:order-writer-1"
    assert Token.parse("7:0:a:b") == Token(7, 0, "a:b")


@pytest.mark.parametrize("text", ["", "7", "7:0", "7:0:", ":0:a", "x:0:a", "7:-1:a", "-7:0:a", "07:0:a", "7: 0:a"])
def test_what_is_no_token_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 7:0:order-writer-1; got"):
        Token.parse(text)
