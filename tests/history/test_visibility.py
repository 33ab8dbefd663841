"""Records that are missing or torn are found and proved by the lines that matter and no others."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.history.findings import Anomaly
from fencepost.history.writer import ClientHistory
from tests.history.story import Story, three_records


def test_a_record_acknowledged_and_not_in_the_final_read_is_a_lost_write(story: Story) -> None:
    producer = story.producer()
    story.send(producer, "a", 0, 0)
    lost = story.send(producer, "b", 0, 1)
    final = story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.LOST_WRITE, [*lost, final])]


def test_a_record_acknowledged_past_the_end_of_the_final_log_is_a_lost_write(story: Story) -> None:
    lost = story.send(story.producer(), "a", 0, 5)
    final = story.final_read([3])
    assert story.found() == [(Anomaly.LOST_WRITE, [*lost, final])]


def test_a_record_acknowledged_without_an_offset_and_not_in_the_final_read_is_a_lost_write(story: Story) -> None:
    call = story.producer().send("t", "a")
    sent = story.line
    call.ok(partition=0)
    acknowledged = story.line
    final = story.final_read([1])
    assert story.found() == [(Anomaly.LOST_WRITE, [sent, acknowledged, final])]


def test_an_unread_record_that_a_poll_passes_is_a_lost_write_without_a_final_read(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    story.send(producer, "a", 0, 0)
    lost = story.send(producer, "b", 0, 1)
    story.send(producer, "c", 0, 2)
    poll = story.poll(consumer, ("t", 0, 0, "a"), ("t", 0, 2, "c"))
    assert story.found() == [(Anomaly.LOST_WRITE, [*lost, poll])]


def test_a_committed_transaction_of_which_nothing_is_there_is_one_lost_write(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    lost = story.send(producer, "a", 0, 0)
    story.send(producer, "b", 1, 0)
    committed = story.commit(producer)
    final = story.final_read([2, 2])
    assert story.found() == [(Anomaly.LOST_WRITE, [*lost, committed, final])]


def test_sends_without_an_outcome_in_a_transaction_whose_commit_is_acknowledged_are_not_to_be_lost(
    story: Story,
) -> None:
    producer = story.producer()
    producer.begin()
    producer.send("t", "a", 0)
    sent = story.line
    committed = story.commit(producer)
    final = story.final_read([1])
    assert story.found() == [(Anomaly.LOST_WRITE, [sent, committed, final])]


def two_partitions(story: Story, end: Callable[[ClientHistory], object]) -> tuple[int, int]:
    """A transaction of "a" in partition 0 and "b" in partition 1; the lines of sending and acknowledging "b"."""
    producer = story.producer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    sent, acknowledged = story.send(producer, "b", 1, 0)
    end(producer)
    return sent, acknowledged


def test_a_committed_transaction_of_which_one_partition_is_lost_in_the_end_is_torn(story: Story) -> None:
    missing = two_partitions(story, story.commit)
    committed = story.line
    final = story.final_read([2, 2], ("t", 0, 0, "a"))
    assert story.found() == [(Anomaly.TORN_TRANSACTION, [*missing, committed, final, final])]


def test_a_commit_of_unknown_outcome_is_torn_if_the_final_read_has_only_a_part_of_it(story: Story) -> None:
    missing = two_partitions(story, lambda producer: producer.commit().unknown("KafkaTimeoutError"))
    final = story.final_read([2, 2], ("t", 0, 0, "a"))
    asked = missing[1] + 1
    assert story.found() == [(Anomaly.TORN_TRANSACTION, [*missing, asked, final, final])]


def test_a_commit_of_unknown_outcome_is_torn_if_one_consumer_saw_it_and_the_final_read_does_not(story: Story) -> None:
    two_partitions(story, lambda producer: producer.commit().unknown("KafkaTimeoutError"))
    poll = story.poll(story.consumer(), ("t", 0, 0, "a"))
    final = story.final_read([2, 2])
    ((anomaly, lines),) = story.found()
    assert anomaly is Anomaly.TORN_TRANSACTION
    assert {poll, final} <= set(lines)


def test_a_consumer_that_reads_a_part_of_a_transaction_in_one_partition_sees_it_torn(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    sent, _ = story.send(producer, "b", 0, 1)
    committed = story.commit(producer)
    story.send(story.producer("other"), "c", 0, 3)
    poll = story.poll(consumer, ("t", 0, 0, "a"), ("t", 0, 3, "c"))
    final = story.final_read([4], ("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 0, 3, "c"))
    assert story.found() == [(Anomaly.TORN_TRANSACTION, [sent, committed, poll, poll])]
    assert final > poll


def test_a_record_that_others_read_and_a_consumer_comes_past_is_a_skipped_read(story: Story) -> None:
    a, b, c = three_records(story)
    other = story.poll(story.consumer("other"), a, b, c)
    consumer = story.consumer()
    first = story.poll(consumer, a)
    second = story.poll(consumer, c)
    sent_b = 4
    assert story.found() == [(Anomaly.SKIPPED_READ, [sent_b, other, first, second])]


def test_a_record_between_the_position_sought_and_the_first_one_polled_is_a_skipped_read(story: Story) -> None:
    a, b, c = three_records(story)
    other = story.poll(story.consumer("other"), a, b, c)
    consumer = story.consumer()
    consumer.seek([("t", 0, 1)])
    sought = story.line
    poll = story.poll(consumer, c)
    assert story.found() == [(Anomaly.SKIPPED_READ, [4, other, sought, poll])]
