"""Places that a question fills."""

from __future__ import annotations

import pytest

from fencepost.check_back.places import PLACES, filled, unknown_places
from fencepost.check_back.question import Question
from fencepost.two_phase.tokens import Token

QUESTION = Question(Token(7, 2, "order-{token}"), 1_000, ())


@pytest.mark.parametrize(
    ("place", "value"),
    [("transactional_id", "order-{token}"), ("producer_id", 7), ("producer_epoch", 2), ("started_ms", 1_000)],
)
def test_a_question_fills_each_place(place: str, value: object) -> None:
    assert PLACES[place](QUESTION) == value


def test_what_is_filled_in_is_not_filled_again() -> None:
    text = filled("/{transactional_id}?epoch={producer_epoch}", lambda name: str(PLACES[name](QUESTION)))
    assert text == "/order-{token}?epoch=2"


def test_a_place_that_no_question_fills_is_named() -> None:
    assert unknown_places("/{token}/{tokne}/{}") == ["tokne", ""]
    assert filled("/{tokne}", str.upper) == "/{tokne}"
