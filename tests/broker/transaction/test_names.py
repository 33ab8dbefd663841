"""Rules by the names of transactional ids."""

from __future__ import annotations

import pytest

from fencepost.broker.transaction.names import expiration_ms, is_matched, parse_expirations


def test_an_id_matches_any_of_the_globs_in_its_case() -> None:
    globs = ("orders-*", "till-?", "shop-[ab]")
    assert [is_matched(globs, name) for name in ("orders-", "till-1", "shop-b")] == [True] * 3
    assert [is_matched(globs, name) for name in ("Orders-1", "till-10", "shop-c", "x-orders-1")] == [False] * 4
    assert not is_matched((), "orders-1")


def test_the_first_rule_that_matches_says_how_long_an_id_is_kept() -> None:
    rules = parse_expirations(["sink-a=5", "sink-*=7"])
    assert [expiration_ms(rules, name, 9) for name in ("sink-a", "sink-b", "other")] == [5, 7, 9]


@pytest.mark.parametrize("entry", ["", "sink-*", "=5", "sink-*=", "sink-*=0", "sink-*=-1", "sink-*=1.5", "sink-*=٣"])
def test_a_rule_without_a_glob_or_milliseconds_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="expected GLOB=MILLISECONDS"):
        parse_expirations([entry])
