"""Groups' offsets that were committed with a transaction share its outcome."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.history.findings import Anomaly
from fencepost.history.writer import ClientHistory
from tests.history.story import Story, process


def offsets_in_a_transaction(story: Story, outcome: Callable[[ClientHistory], object]) -> int:
    """The line that adds offset 5 of in-0 to a transaction with the record "a"."""
    producer = story.producer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    call = producer.send_offsets("group", [("in", 0, 5)])
    added = story.line
    call.ok()
    outcome(producer)
    return added


def final_offsets_read(story: Story, offset: int | None) -> int:
    story.consumer("asker").final_offsets("group").ok([("in", 0, offset)])
    return story.line


def test_a_transactions_records_without_its_offsets_are_torn(story: Story) -> None:
    added = offsets_in_a_transaction(story, story.commit)
    committed = story.line
    final = story.final_read([2], ("t", 0, 0, "a"))
    answered = final_offsets_read(story, None)
    assert story.found() == [(Anomaly.TORN_TRANSACTION, [added, committed, final, answered])]


def test_a_transactions_offsets_without_its_records_are_torn(story: Story) -> None:
    offsets_in_a_transaction(story, lambda producer: producer.commit().unknown("KafkaTimeoutError"))
    answered = final_offsets_read(story, 5)
    final = story.final_read([2])
    ((anomaly, lines),) = story.found()
    assert anomaly is Anomaly.TORN_TRANSACTION
    assert {answered, final} <= set(lines)


def test_offsets_of_an_aborted_transaction_are_an_aborted_read(story: Story) -> None:
    added = offsets_in_a_transaction(story, story.abort)
    aborted = story.line
    answered = final_offsets_read(story, 5)
    assert story.found() == [(Anomaly.ABORTED_READ, [added, aborted, answered])]


def test_offsets_of_a_transaction_that_died_open_are_a_dirty_read(story: Story) -> None:
    added = offsets_in_a_transaction(story, lambda producer: None)
    answered = final_offsets_read(story, 5)
    assert story.found() == [(Anomaly.DIRTY_READ, [added, answered])]


def test_plainly_committed_offsets_that_are_not_there_in_the_end_are_a_lost_write(story: Story) -> None:
    consumer = story.consumer()
    consumer.commit_offsets("group", [("in", 0, 3)]).ok()
    call = consumer.commit_offsets("group", [("in", 0, 5)])
    committed = story.line
    call.ok()
    answered = final_offsets_read(story, 3)
    assert story.found() == [(Anomaly.LOST_WRITE, [committed, committed + 1, answered])]


def test_a_committed_transaction_that_takes_its_groups_offset_back_is_an_offset_regression(story: Story) -> None:
    app = story.producer("app")
    first = process(story, app, "o1", 0, [], 7)
    second = process(story, app, "o2", 2, [], 4)
    assert story.found() == [(Anomaly.OFFSET_REGRESSION, [*first[1:], *second[1:]])]
