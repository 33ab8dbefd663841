"""Refusals that all kinds of groups have in common."""

from __future__ import annotations

from fencepost.broker.group.refusals import fenced_member, full_group, no_such_group, unknown_member
from fencepost.protocol.errors import ErrorCode


def test_the_reason_differs_between_a_missing_group_and_one_of_another_kind() -> None:
    missing, other = no_such_group("g", None, "share"), no_such_group("g", object(), "share")
    assert missing.error == other.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert (missing.message, other.message) == ("Group g not found.", "Group g is not a share group.")


def test_a_fenced_member_hears_which_epoch_is_greater() -> None:
    assert "greater member epoch (5)" in (fenced_member(3, 5, "consumer").message or "")
    assert "smaller member epoch (2)" in (fenced_member(3, 2, "consumer").message or "")


def test_a_full_group_and_an_unknown_member_have_kafkas_errors() -> None:
    assert full_group(7, "share").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert unknown_member("m", "g").error == ErrorCode.UNKNOWN_MEMBER_ID
