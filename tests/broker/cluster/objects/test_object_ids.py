"""Ids of objects tell their uploader, and are never given twice."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.objects.object_ids import FENCE_BITS, ObjectIds, Uploader, uploader_of

UPLOADERS = st.builds(Uploader, st.integers(0, 2**31 - 1), st.integers(0, 2**FENCE_BITS - 1))


@given(UPLOADERS)
def test_an_id_tells_its_uploader_and_is_a_uuid_as_the_standard_has_it(uploader: Uploader) -> None:
    object_id = ObjectIds().new(uploader)
    assert uploader_of(object_id) == uploader
    assert (object_id.version, object_id.variant) == (8, uuid.RFC_4122)
    assert object_id.hex.startswith(f"{uploader.node_id:08x}")


def test_no_id_is_given_twice_by_a_process_nor_by_another_one_with_its_fence() -> None:
    """A database that went back in time may give out a fence again."""
    uploader = Uploader(1, 7)
    ids = [one for given_by in (ObjectIds(), ObjectIds()) for one in (given_by.new(uploader) for _ in range(1_000))]
    assert len(set(ids)) == 2_000


def test_the_numbers_of_ids_begin_again_after_the_last_one() -> None:
    ids = ObjectIds()
    ids._number = 2**44 - 2
    assert [ids.new(Uploader(2, 3)).int & 0xFF for _ in range(3)] == [0xFF, 0, 1]
    assert uploader_of(ids.new(Uploader(2, 3))) == Uploader(2, 3)


def test_random_ids_of_earlier_versions_tell_nothing() -> None:
    assert uploader_of(uuid.uuid4()) is None


@pytest.mark.parametrize("uploader", [Uploader(-1, 1), Uploader(1, 2**FENCE_BITS)])
def test_no_id_is_made_for_who_does_not_fit_into_it(uploader: Uploader) -> None:
    with pytest.raises(AssertionError):
        ObjectIds().new(uploader)
