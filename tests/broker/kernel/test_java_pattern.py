"""Patterns of Java are matched by RE2 if they mean the same there, and refused with the construct's name if not."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.java_pattern import PatternError, compiled, translate

FAST_ENOUGH_CHARACTERS = 1_000


@pytest.mark.parametrize(
    ("pattern", "text", "is_matched"),
    [
        (r"app-\d+", "app-12", True),
        (r"app-\d+", "app-12-b", False),
        (r"(?:kafka|librdkafka)", "librdkafka", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\s", "\v", True),
        (r"[a-c]{2,3}", "abcd", False),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, text: str, is_matched: bool) -> None:
    assert (compiled(pattern)[1].fullmatch(text) is not None) == is_matched


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", r"\p{L}", "[a&&[b]]", "a++", "(", "[", "a**"])
def test_a_pattern_that_means_something_else_or_is_none_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(PatternError, match="cannot be used"):
        compiled(pattern)


def test_a_pattern_that_needs_more_memory_than_allowed_is_refused() -> None:
    with pytest.raises(PatternError, match="cannot be read"):
        compiled("(?:(?:[a-z]{100}){100}){10}", maximum_memory_bytes=10_000)


def test_a_pattern_that_backtracks_for_ages_elsewhere_takes_linear_time() -> None:
    assert translate("(a|aa)+b").group_count == 1
    assert compiled("(a|aa)+b")[1].fullmatch("a" * FAST_ENOUGH_CHARACTERS) is None
