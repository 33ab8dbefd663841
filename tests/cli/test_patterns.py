"""One language of patterns for names of topics and groups."""

from __future__ import annotations

import click
import pytest

from fencepost.cli.patterns import Pattern, PatternType, is_pattern, matching

NAMES = ["orders", "orders.eu", "orders-eu", "ordersxeu", "payments", "g[1]", "a*b", "two\nlines", "\u202egroup\x00"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", ["orders"]),
        ("orders?eu", ["orders.eu", "orders-eu", "ordersxeu"]),
        ("orders.*", ["orders.eu"]),
        ("*eu", ["orders.eu", "orders-eu", "ordersxeu"]),
        ("g[1]", ["g[1]"]),
        ("two*", ["two\nlines"]),
        ("*\x00", ["\u202egroup\x00"]),
        ("^orders", ["orders", "orders.eu", "orders-eu", "ordersxeu"]),
        ("^orders$", ["orders"]),
        (r"^orders\.", ["orders.eu"]),
        ("^(?!orders).*s$", ["payments", "two\nlines"]),
        (r"^a\*b", ["a*b"]),
        ("Orders", []),
    ],
)
def test_a_pattern_means_these_names(pattern: str, expected: list[str]) -> None:
    assert matching(NAMES, [Pattern(pattern)]) == expected


def test_several_patterns_mean_each_name_once() -> None:
    assert matching(NAMES, [Pattern("orders*"), Pattern("*.eu")]) == ["orders", "orders.eu", "orders-eu", "ordersxeu"]


@pytest.mark.parametrize("text", ["", " ", "^(", "^*", "^a{2,1}"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"matches nothing|is no regular expression"):
        PatternType().convert(text, None, None)


@pytest.mark.parametrize("text", ["*", "**", "?*", "^", "^.*", "^.*$", "^.", "^.+"])
def test_a_pattern_that_matches_every_name_is_known(text: str) -> None:
    assert Pattern(text).is_of_everything


@pytest.mark.parametrize("text", ["orders*", "*-*", "???", "^a", "^[a-z]", "^$"])
def test_a_pattern_that_chooses_is_not_one_of_everything(text: str) -> None:
    assert not Pattern(text).is_of_everything


def test_many_stars_take_no_time() -> None:
    assert not Pattern("*" * 200 + "b").matches("a" * 249)


def test_no_name_of_a_topic_is_a_pattern() -> None:
    assert not any(map(is_pattern, ["orders", "orders.eu", "_schemas", "A-1"]))
    assert all(map(is_pattern, ["^orders", "orders*", "order?"]))
