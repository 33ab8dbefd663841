"""Delegation tokens: who may do what with one, and how long it lives."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from fencepost.broker.security.delegation_tokens import (
    MAXIMUM_NAMES_CHARACTERS,
    Lifetimes,
    Token,
    ended,
    has_long_names,
    is_expired,
    is_shown,
    new_token,
    renewed,
    secret_of,
    without_expired,
)
from fencepost.protocol.errors import ErrorCode

ALICE, BOB, CAROL, DAVE = "User:alice", "User:bob", "User:carol", "User:dave"
NOW_MS = 1_000_000
LIFETIMES = Lifetimes(max_lifetime_ms=7_000, expiry_time_ms=1_000)
LAST_MS = (1 << 63) - 1
EXPIRED, MISMATCH = ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def token(max_lifetime_ms: int = -1, *, lifetimes: Lifetimes = LIFETIMES) -> Token:
    """A token that bob created for alice, and carol may renew."""
    return new_token("id", ALICE, BOB, [CAROL], max_lifetime_ms, lifetimes, NOW_MS)


@pytest.mark.parametrize(
    ("asked_ms", "expires_ms", "max_ms"),
    [(-1, 1_000, 7_000), (0, 1_000, 7_000), (3_000, 1_000, 3_000), (500, 500, 500), (LAST_MS, 1_000, 7_000)],
)
def test_a_token_lives_as_long_as_was_asked_for_and_no_longer_than_allowed(
    asked_ms: int, expires_ms: int, max_ms: int
) -> None:
    made = token(asked_ms)
    assert (made.expires_ms - NOW_MS, made.max_ms - NOW_MS) == (expires_ms, max_ms)


def test_a_life_without_end_ends_with_the_largest_timestamp() -> None:
    made = token(lifetimes=Lifetimes(LAST_MS, LAST_MS))
    assert (made.expires_ms, made.max_ms) == (LAST_MS, LAST_MS)
    later = ended(made, ALICE, LAST_MS, NOW_MS)
    assert isinstance(later, Token)
    assert later.expires_ms == LAST_MS


def test_a_renewer_named_twice_is_one() -> None:
    assert new_token("id", ALICE, ALICE, [BOB, BOB, CAROL], -1, LIFETIMES, NOW_MS).renewers == (BOB, CAROL)


def test_the_secret_is_kafkas_hmac_of_the_id() -> None:
    assert secret_of("id", b"key") == hmac.new(b"key", b"id", hashlib.sha512).digest()


@pytest.mark.parametrize("principal", [ALICE, CAROL])
@pytest.mark.parametrize(
    ("period_ms", "passed_ms", "expires_ms"), [(-1, 500, 1_500), (0, 500, 1_500), (300, 0, 300), (5_000, 0, 1_000)]
)
def test_the_owner_and_a_renewer_renew(principal: str, period_ms: int, passed_ms: int, expires_ms: int) -> None:
    after = renewed(token(), principal, period_ms, LIFETIMES, NOW_MS + passed_ms)
    assert after == token()._replace(expires_ms=NOW_MS + expires_ms)


def test_no_renewal_goes_beyond_the_longest_life() -> None:
    made = token(1_200)
    after = renewed(made, ALICE, -1, LIFETIMES, NOW_MS + 900)
    assert after == made._replace(expires_ms=made.max_ms)


@pytest.mark.parametrize("principal", [BOB, DAVE, "Group:alice", "User:*"])
def test_nobody_else_renews_or_ends_a_token_not_even_who_created_it(principal: str) -> None:
    assert renewed(token(), principal, -1, LIFETIMES, NOW_MS) is MISMATCH
    assert ended(token(), principal, -1, NOW_MS) is MISMATCH


def test_an_expired_token_can_only_be_ended_at_once() -> None:
    made, late_ms = token(), NOW_MS + 1_001
    assert not is_expired(made, late_ms - 1)
    assert is_expired(made, late_ms)
    assert renewed(made, ALICE, -1, LIFETIMES, late_ms) is EXPIRED
    assert renewed(made, DAVE, -1, LIFETIMES, late_ms) is EXPIRED  # as in Kafka, the expiry comes first
    assert ended(made, ALICE, 0, late_ms) is EXPIRED
    assert ended(made, DAVE, 0, late_ms) is MISMATCH  # and here it does not
    assert ended(made, DAVE, -1, late_ms) is MISMATCH
    assert ended(made, ALICE, -1, late_ms) is None


def test_a_token_ends_at_once_or_at_a_time() -> None:
    assert ended(token(), CAROL, -1, NOW_MS) is None
    assert ended(token(), ALICE, 0, NOW_MS) == token()._replace(expires_ms=NOW_MS)
    assert ended(token(), ALICE, 2_000, NOW_MS) == token()._replace(expires_ms=NOW_MS + 2_000)
    assert ended(token(), ALICE, 9_000, NOW_MS) == token()._replace(expires_ms=NOW_MS + 7_000)


def test_a_clock_that_was_set_back_shortens_a_life_and_revives_a_token() -> None:
    made = token()
    assert renewed(made, ALICE, -1, LIFETIMES, NOW_MS - 5_000) == made._replace(expires_ms=NOW_MS - 4_000)
    assert is_expired(made, NOW_MS + 10_000)
    assert not is_expired(made, NOW_MS)


@pytest.mark.parametrize(
    ("principal", "owners", "is_visible"),
    [
        (ALICE, None, True),
        (CAROL, None, True),
        (BOB, None, False),
        (ALICE, {DAVE}, False),
        (ALICE, set(), False),
        (ALICE, {CAROL}, True),
    ],
)
def test_owners_and_renewers_see_their_tokens(principal: str, owners: set[str] | None, *, is_visible: bool) -> None:
    assert is_shown(token(), principal, owners, lambda _: False, lambda _: False) is is_visible


def test_a_right_to_the_token_or_to_the_tokens_of_its_owner_shows_it() -> None:
    assert is_shown(token(), DAVE, None, lambda name: name == "id", lambda _: False)
    assert is_shown(token(), DAVE, {ALICE}, lambda _: False, lambda owner: owner == ALICE)
    assert not is_shown(token(), DAVE, {BOB}, lambda _: True, lambda _: True), "bob only created it"
    assert not is_shown(token(), DAVE, None, lambda name: name != "id", lambda owner: owner != ALICE)


def test_only_valid_tokens_stay() -> None:
    short = token(100)._replace(token_id="short")
    assert without_expired({"id": token(), "short": short}, NOW_MS + 101) == {"id": token()}
    assert without_expired({"id": token(), "short": short}, NOW_MS + 100) is None


def test_the_names_of_a_token_are_bounded_together() -> None:
    assert not has_long_names(ALICE, BOB, ["r" * (MAXIMUM_NAMES_CHARACTERS - len(ALICE) - len(BOB))])
    assert has_long_names(ALICE, BOB, ["r" * (MAXIMUM_NAMES_CHARACTERS // 4)] * 4)
