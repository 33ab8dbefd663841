"""Copies are decided so that a repeated one is the same batch, and no two have the same sequences."""

from __future__ import annotations

import pytest

from fencepost.broker.share.dead_letters import (
    HIGHEST_SEQUENCE,
    MOST_RECORDS,
    DeadLetterTarget,
    Origin,
    batch_of,
    can_follow,
    completed,
    dead_letters,
    fitting,
    given_up,
    is_under_way,
    next_copy,
    reason_of,
)
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import iterate_batches
from fencepost.protocol.stored.share_group_state import DeadLetterCopy

TARGET = DeadLetterTarget("dlq.orders", b"t" * 16, 0, 1_000_000)
ORIGIN = Origin("orders", 3, "g", 2, "why")


def test_the_next_copy_continues_behind_the_records_of_the_last_one() -> None:
    first = next_copy(None, TARGET, 7, 10, 14)
    assert is_under_way(first)
    assert (first.producer_id, first.base_sequence) == (7, 0)
    done = completed(first)
    assert not is_under_way(done)
    second = next_copy(done, TARGET, None, 20, 20)
    assert (second.producer_id, second.base_sequence, second.first_offset) == (7, 5, 20)


@pytest.mark.parametrize(
    ("copy", "follows"),
    [
        (None, False),
        (DeadLetterCopy(b"t" * 16, 0, 7, 5), True),
        (DeadLetterCopy(b"u" * 16, 0, 7, 5), False),
        (DeadLetterCopy(b"t" * 16, 1, 7, 5), False),
        (DeadLetterCopy(b"t" * 16, 0, 7, HIGHEST_SEQUENCE - MOST_RECORDS), False),
        (given_up(DeadLetterCopy(b"t" * 16, 0, 7, 5, 1, 2)), False),
    ],
)
def test_sequences_go_on_only_in_the_same_partition_of_the_same_topic(
    copy: DeadLetterCopy | None, follows: bool
) -> None:
    assert can_follow(copy, TARGET) is follows


def test_nothing_is_under_way_before_the_first_copy_and_after_one_that_was_given_up() -> None:
    assert not is_under_way(None)
    assert not is_under_way(given_up(None))


def test_a_repeated_copy_has_the_same_producer_and_sequences_even_if_the_originals_are_gone() -> None:
    copy = DeadLetterCopy(b"t" * 16, 0, 7, 5, 10, 11)
    originals = {10: Record(10, 1, b"k", b"v", (("h", b"x"),))}
    headers = []
    for sources in (originals, {}):
        batch = batch_of(copy, dead_letters(ORIGIN, 10, 11, sources, 99))
        (read,) = iterate_batches(memoryview(batch))
        headers.append((read.header.producer_id, read.header.producer_epoch, read.header.base_sequence))
        assert read.header.last_offset_delta == 1
    assert headers == [(7, 0, 5)] * 2


def test_a_dead_letter_has_the_original_and_kafkas_headers_behind_its_own() -> None:
    (letter,) = dead_letters(ORIGIN, 10, 10, {10: Record(10, 1, b"k", b"v", (("h", b"x"),))}, 99)
    assert (letter.timestamp_ms, letter.key, letter.value) == (99, b"k", b"v")
    assert [name for name, _ in letter.headers] == [
        "h",
        "__dlq.errors.topic",
        "__dlq.errors.partition",
        "__dlq.errors.offset",
        "__dlq.errors.group",
        "__dlq.errors.delivery.count",
        "__dlq.errors.message",
    ]


def test_a_batch_has_as_many_records_as_fit() -> None:
    sources = {offset: Record(offset, 1, None, b"v" * 1_000, ()) for offset in range(10)}
    records = dead_letters(ORIGIN, 0, 9, sources, 99)
    fit = fitting(records, 5_000)
    assert 2 <= len(fit) < 5
    assert len(batch_of(DeadLetterCopy(), fit)) <= 5_000
    assert len(fitting(dead_letters(ORIGIN, 0, 2 * MOST_RECORDS, {}, 99), 10_000_000)) == MOST_RECORDS


def test_a_record_that_is_too_large_alone_leaves_its_headers() -> None:
    records = dead_letters(ORIGIN, 4, 5, {4: Record(4, 1, b"k", b"v" * 9_000, (("h", b"x"),))}, 99)
    (letter,) = fitting(records, 5_000)
    assert (letter.offset, letter.key, letter.value, len(letter.headers)) == (4, None, None, 6)


@pytest.mark.parametrize(
    ("is_rejected", "delivery_count", "reason"),
    [
        (True, 1, "Offset rejected by client."),
        (True, 5, "Offset rejected by client."),
        (False, 5, "Offset delivery count exceeded the threshold."),
        (False, 1, "Offset rejected by client."),
    ],
)
def test_the_reason_is_known_or_follows_from_the_delivery_count(
    is_rejected: bool, delivery_count: int, reason: str
) -> None:
    found = reason_of(is_rejected=is_rejected, delivery_count=delivery_count, delivery_count_limit=5)
    assert found == reason
