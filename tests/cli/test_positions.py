"""Where to read: the words for offsets, the topics that names and patterns mean, and the bounds of partitions."""

from __future__ import annotations

from typing import Any

import click
import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndTimestamp

from fencepost.cli.positions import OffsetType, Start, Wanted, assign, checked_partitions, matching_topics

TOPICS = ("orders", "orders-2", "payments", "__consumer_offsets")
PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start()),
        ("earliest", Start()),
        ("end", Start(before_end=0)),
        ("latest", Start(before_end=0)),
        ("7", Start(offset=7)),
        ("-5", Start(before_end=5)),
    ],
)
def test_an_offset_is_a_word_a_number_or_a_number_before_the_end(text: str, expected: Start) -> None:
    assert OffsetType().convert(text, None, None) == expected
    assert OffsetType().convert(expected, None, None) is expected


@pytest.mark.parametrize("text", ["", "-", "--5", "first", "1.5", "\u0663", "+1"])
def test_other_words_are_no_offset(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no offset: write beginning, end, a number, or -5"):
        OffsetType().convert(text, None, None)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start(), 10),
        (Start(offset=3), 10),
        (Start(offset=42), 42),
        (Start(offset=1_000), 100),
        (Start(before_end=0), 100),
        (Start(before_end=5), 95),
        (Start(before_end=1_000), 10),
    ],
)
def test_a_start_is_within_the_offsets_of_the_partition(start: Start, expected: int) -> None:
    assert start.within(10, 100) == expected


def test_names_and_patterns_mean_topics_each_once() -> None:
    assert matching_topics(TOPICS, ["payments", "^orders", "orders"]) == ["payments", "orders", "orders-2"]
    assert matching_topics(TOPICS, ["*s", "order?-2"]) == ["orders", "payments", "orders-2"]


def test_a_pattern_never_means_an_internal_topic_and_a_name_may() -> None:
    assert matching_topics(TOPICS, ["^.*"]) == ["orders", "orders-2", "payments"]
    assert matching_topics(TOPICS, ["__consumer_offsets"]) == ["__consumer_offsets"]


def test_a_name_or_pattern_without_a_topic_is_refused() -> None:
    with pytest.raises(click.ClickException, match="'nothing'"):
        matching_topics(TOPICS, ["nothing"])
    with pytest.raises(click.ClickException, match=r"no topic matches '\^nothing'"):
        matching_topics(TOPICS, ["^nothing"])
    with pytest.raises(click.BadParameter, match=r"'\^\(' is no regular expression"):
        matching_topics(TOPICS, ["^("])


def test_only_partitions_that_exist_are_read() -> None:
    assert checked_partitions("orders", {1, 0}, ()) == [0, 1]
    assert checked_partitions("orders", {1, 0}, (1,)) == [1]
    with pytest.raises(click.ClickException, match="topic 'orders' has no partition 2; it has 2"):
        checked_partitions("orders", {1, 0}, (2,))


class Consumer:
    """One partition with the offsets 10 to 100; a record of time 5 has offset 60, later ones are missing."""

    def __init__(self) -> None:
        self.positions: dict[Any, int] = {}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic == "orders" else None

    def beginning_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 10)

    def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 100)

    def offsets_for_times(self, times: dict[Any, int]) -> dict[Any, Any]:
        return {place: OffsetAndTimestamp(60, time, -1) if time <= 5 else None for place, time in times.items()}

    def assign(self, places: list[Any]) -> None:
        self.positions = dict.fromkeys(places, -1)

    def seek(self, place: Any, offset: int) -> None:
        self.positions[place] = offset


@pytest.mark.parametrize(
    ("wanted", "from_beginning", "position", "ends"),
    [
        (Wanted(), False, 100, {}),
        (Wanted(), True, 10, {}),
        (Wanted(start=Start(offset=42), to_end=True), True, 42, {PLACE: 100}),
        (Wanted(from_ms=5, to_ms=9), False, 60, {PLACE: 100}),
        (Wanted(from_ms=9), True, 100, {}),
        (Wanted(to_ms=5), True, 10, {PLACE: 60}),
    ],
)
def test_a_consumer_is_put_where_it_begins_and_knows_where_it_ends(
    wanted: Wanted, from_beginning: bool, position: int, ends: dict[Any, int]
) -> None:
    consumer = Consumer()
    assert assign(consumer, ["orders"], wanted, from_beginning=from_beginning) == ends
    assert consumer.positions == {PLACE: position}


def test_nothing_in_particular_is_all() -> None:
    assert Wanted().is_all
    assert not Wanted(to_end=True).is_all
