"""Ids of commits: unique, in the order of their begins, and read back."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.two_phase.commit_ids import HEADER, Commit, new_commit, time_of

OF_VERSION_0 = "00000000-0000-0000-0000-000000000000"
OF_VERSION_4 = "bea446d5-51a5-40d7-8bda-4f88af6b9dbb"
AN_ID = "01a22660-af43-70ef-b761-9551ea6a393a"


@given(st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_a_uuid_of_version_7_that_has_the_time_of_its_begin(time_ms: int, random: bytes) -> None:
    commit = new_commit(lambda: (time_ms + 0.5) / 1000, lambda _: random)
    found = uuid.UUID(commit.id)
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert time_of(commit.id) == time_ms


def test_ids_of_the_same_moment_differ() -> None:
    assert len({new_commit(lambda: 1.0).id for _ in range(1_000)}) == 1_000


def test_ids_sort_by_the_time_of_their_begin() -> None:
    ids = [new_commit(lambda at=at: float(at)).id for at in range(1_000, 100_000, 997)]  # type: ignore[misc]
    assert ids == sorted(ids)


def test_a_clock_before_1970_makes_an_id_all_the_same() -> None:
    assert time_of(new_commit(lambda: -5.0).id) == 0


@pytest.mark.parametrize(
    "text", ["", "None", "7:0:orders", OF_VERSION_0, OF_VERSION_4, AN_ID.upper(), f"{AN_ID}0", "\0", "ü" * 300]
)
def test_other_texts_are_no_ids(text: str) -> None:
    assert time_of(text) is None


def test_an_id_is_written_in_one_way_only() -> None:
    assert time_of(AN_ID) == 0x01A22660AF43
    assert time_of(f"{{{AN_ID}}}") is None


def test_the_headers_are_bytes_as_all_clients_take_them() -> None:
    assert Commit("a").headers == [(HEADER, b"a")] == [("fencepost-commit-id", b"a")]
