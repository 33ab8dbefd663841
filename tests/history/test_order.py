"""Two records at one offset, one at two, and an order that contradicts that of the sends."""

from __future__ import annotations

from fencepost.history.findings import Anomaly
from tests.history.story import Story


def test_a_record_that_an_idempotent_producer_sent_once_and_that_is_there_twice_is_a_duplicate(story: Story) -> None:
    sent, acknowledged = story.send(story.producer(), "a", 0, 0)
    final = story.final_read([2], ("t", 0, 0, "a"), ("t", 0, 1, "a"))
    assert story.found() == [(Anomaly.DUPLICATE, [sent, acknowledged, final])]


def test_a_record_acknowledged_at_another_offset_than_it_is_read_at_is_an_inconsistent_offset(story: Story) -> None:
    _, acknowledged = story.send(story.producer(), "a", 0, 0)
    final = story.final_read([2], ("t", 0, 1, "a"))
    assert story.found() == [(Anomaly.INCONSISTENT_OFFSET, [acknowledged, final])]


def test_two_records_at_one_offset_are_an_inconsistent_offset(story: Story) -> None:
    producer, other = story.producer(), story.producer("other")
    _, first = story.send(producer, "a", 0, 0)
    _, second = story.send(other, "b", 0, 0)
    assert story.found() == [(Anomaly.INCONSISTENT_OFFSET, [first, second])]


def test_an_idempotent_producers_records_in_another_order_than_sent_are_a_non_monotonic_send(story: Story) -> None:
    producer = story.producer()
    first, second = producer.send("t", "a", 0), producer.send("t", "b", 0)
    first.ok(offset=1)
    second.ok(offset=0)
    assert story.found() == [(Anomaly.NONMONOTONIC_SEND, [2, 3, 4, 5])]


def test_a_record_sent_after_an_acknowledgement_at_a_lower_offset_is_a_non_monotonic_send(story: Story) -> None:
    one = story.writer.client("one", idempotent=False)
    other = story.writer.client("other", idempotent=False)
    first = story.send(one, "a", 0, 1)
    second = story.send(other, "b", 0, 0)
    assert story.found() == [(Anomaly.NONMONOTONIC_SEND, [*first, *second])]
