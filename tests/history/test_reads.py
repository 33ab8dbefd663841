"""Reads that no commit explains, and polls that go back."""

from __future__ import annotations

from fencepost.history.findings import Anomaly
from tests.history.story import Story, three_records


def test_an_unsent_value_is_a_foreign_read(story: Story) -> None:
    story.send(story.producer(), "a", 0, 0)
    final = story.final_read([2], ("t", 0, 0, "a"), ("t", 0, 1, "b"))
    assert story.found() == [(Anomaly.FOREIGN_READ, [final])]


def test_a_record_of_an_aborted_transaction_at_read_committed_is_an_aborted_read(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    sent, _ = story.send(producer, "a", 0, 0)
    aborted = story.abort(producer)
    final = story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.ABORTED_READ, [sent, aborted, final])]


def test_a_record_whose_commit_failed_is_an_aborted_read(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    sent, _ = story.send(producer, "a", 0, 0)
    commit = producer.commit()
    invoked = story.line
    commit.fail("ProducerFencedError")
    final = story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.ABORTED_READ, [sent, invoked, final])]


def test_a_record_whose_send_failed_is_an_aborted_read_for_everybody(story: Story) -> None:
    producer = story.producer()
    call = producer.send("t", "a", 0)
    sent = story.line
    call.fail("MessageTooLargeError")
    failed = story.line
    poll = story.poll(story.writer.client("uncommitted"), ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.ABORTED_READ, [sent, failed, poll])]


def test_a_record_read_before_its_commit_is_requested_is_a_dirty_read(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    producer.begin()
    sent, _ = story.send(producer, "a", 0, 0)
    poll = story.poll(consumer, ("t", 0, 0, "a"))
    producer.commit().ok()
    assert story.found() == [(Anomaly.DIRTY_READ, [sent, poll, story.line - 1])]


def test_a_record_of_a_transaction_that_died_open_is_a_dirty_read(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    sent, _ = story.send(producer, "a", 0, 0)
    story.producer()
    final = story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.DIRTY_READ, [sent, final])]


def test_a_poll_that_gives_a_record_again_is_non_monotonic(story: Story) -> None:
    a, b, c = three_records(story)
    consumer = story.consumer()
    first = story.poll(consumer, a, b)
    second = story.poll(consumer, b, c)
    assert story.found() == [(Anomaly.NONMONOTONIC_POLL, [first, second])]


def test_records_out_of_order_within_one_poll_are_non_monotonic(story: Story) -> None:
    a, b, c = three_records(story)
    poll = story.poll(story.consumer(), a, c, b)
    assert story.found() == [(Anomaly.NONMONOTONIC_POLL, [poll])]


def test_a_poll_from_before_the_position_sought_is_non_monotonic(story: Story) -> None:
    a, b, c = three_records(story)
    consumer = story.consumer()
    consumer.seek([("t", 0, 1)])
    sought = story.line
    poll = story.poll(consumer, a, b, c)
    assert story.found() == [(Anomaly.NONMONOTONIC_POLL, [sought, poll])]
