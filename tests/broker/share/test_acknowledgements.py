"""Invalid acknowledgements are refused before any record is examined."""

from __future__ import annotations

import pytest

from fencepost.broker.share.acknowledgements import Acknowledgement, read_acknowledgements
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch


def read(*batches: tuple[int, int, list[int]], renews: bool = False, version: int = 2) -> list[Acknowledgement] | None:
    return read_acknowledgements(
        [AcknowledgementBatch(*batch) for batch in batches], knows_renewal=version >= 2, is_renewal=renews
    )


def test_ranges_have_one_type_or_one_for_each_record() -> None:
    assert read((0, 4, [1]), (5, 6, [2, 3])) == [Acknowledgement(0, 4, [1]), Acknowledgement(5, 6, [2, 3])]
    assert read() == []


@pytest.mark.parametrize(
    "batch", [(4, 0, [1]), (0, 4, []), (0, 4, [1, 1]), (0, 0, [5]), (0, 0, [-1]), (0, 0, [4])], ids=str
)
def test_what_makes_no_sense_is_refused(batch: tuple[int, int, list[int]]) -> None:
    assert read(batch) is None


def test_ranges_are_in_order() -> None:
    assert read((5, 9, [1]), (0, 4, [1])) is None


def test_locks_are_renewed_only_by_requests_that_say_so() -> None:
    assert read((0, 0, [4]), renews=True) == [Acknowledgement(0, 0, [4])]
    assert read((0, 0, [4]), renews=True, version=1) is None
