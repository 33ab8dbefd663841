"""What Java's collections, and one of Kafka's, give first; what is expected here, Java 17 has said."""

from __future__ import annotations

import pytest

from fencepost.broker.group.java_order import PriorityQueue, hash_map_order, string_hash, timeline_hash_map_order

NUMBERS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("polygenelubricants", -2147483648), ("member-a", -649440786), ("\u00e9\U0001f600", 1996812)],
)
def test_a_string_hashes_by_its_utf_16_units(text: str, hashed: int) -> None:
    assert string_hash(text) == hashed & 0xFFFFFFFF


def test_a_hash_map_gives_its_keys_by_bucket() -> None:
    assert hash_map_order(NUMBERS[:12]) == [
        "nine",
        "six",
        "four",
        "one",
        "twelve",
        "seven",
        "eleven",
        "ten",
        "two",
        "three",
        "five",
        "eight",
    ]


def test_a_hash_map_has_more_buckets_once_it_is_three_quarters_full() -> None:
    order = [
        "nine",
        "six",
        "one",
        "seven",
        "two",
        "three",
        "thirteen",
        "eight",
        "four",
        "twelve",
        "eleven",
        "ten",
        "five",
    ]
    assert hash_map_order(NUMBERS) == order


@pytest.mark.parametrize(
    ("capacity", "order"),
    [
        (1, "six two three five four one"),
        (4, "six two three five four one"),
        (64, "two three four five six one"),
    ],
)
def test_a_hash_map_has_the_buckets_that_it_was_made_for_or_needs(capacity: int, order: str) -> None:
    assert hash_map_order(NUMBERS[:6], capacity) == order.split()


def test_keys_that_share_a_bucket_stay_in_the_order_in_which_they_came() -> None:
    assert hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]


@pytest.mark.parametrize(
    ("size", "order"),
    [
        (1, "one"),
        (2, "one two"),
        (3, "one two three"),
        (5, "four one two five three"),
        (13, "eleven ten seven four nine one two eight five three twelve thirteen six"),
    ],
)
def test_a_timeline_hash_map_gives_its_keys_by_slot(size: int, order: str) -> None:
    assert timeline_hash_map_order(NUMBERS[:size], size) == order.split()


def test_a_timeline_hash_map_keeps_the_slots_that_it_had_when_it_was_fuller() -> None:
    assert timeline_hash_map_order(["one", "two"], 1) == ["two", "one"]
    assert timeline_hash_map_order(["one", "two"], 2) == ["one", "two"]


def polled(elements: list[str]) -> list[str]:
    queue = PriorityQueue(lambda element: int(element[0]), elements)
    found = []
    while queue:
        found.append(queue.poll())
    return found


def test_a_priority_queue_gives_the_least_first() -> None:
    assert polled(["3", "1", "2"]) == ["1", "2", "3"]


def test_of_equal_ones_a_priority_queue_gives_the_first_and_then_from_the_last_on() -> None:
    assert polled(["0a", "0b", "0c", "0d", "0e"]) == ["0a", "0e", "0d", "0c", "0b"]


def test_which_of_some_equal_ones_comes_first_is_a_matter_of_the_heap() -> None:
    assert polled(["2a", "1a", "2b", "3a", "1b", "2c", "1c", "3b"]) == ["1a", "1b", "1c", "2c", "2a", "2b", "3a", "3b"]
