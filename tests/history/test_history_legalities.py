"""What looks strange and is legal in Kafka is not called an anomaly."""

from __future__ import annotations

import pytest

from fencepost.history.checker import check_history
from tests.history.story import Story, process, three_records


def test_markers_and_aborted_records_leave_gaps_in_the_offsets(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    for value, offset, end in [("a", 0, story.commit), ("b", 2, story.abort), ("c", 4, story.commit)]:
        producer.begin()
        story.send(producer, value, 0, offset)
        end(producer)
    story.poll(consumer, ("t", 0, 0, "a"), ("t", 0, 4, "c"))
    story.final_read([6], ("t", 0, 0, "a"), ("t", 0, 4, "c"))
    assert story.found() == []


def test_a_rebalance_takes_a_consumer_back_to_the_committed_offset(story: Story) -> None:
    a, b, c = three_records(story)
    consumer = story.consumer()
    story.poll(consumer, a, b)
    consumer.assign([("t", 0, None)])
    story.poll(consumer, a)
    consumer.seek([("t", 0, 2)])
    story.poll(consumer, c)
    assert story.found() == []


def test_a_restarted_at_least_once_consumer_reads_again(story: Story) -> None:
    a, b, _ = three_records(story)
    story.poll(story.consumer(), a, b)
    consumer = story.consumer()
    story.poll(consumer, a, b)
    consumer.commit_offsets("group", [("t", 0, 2)]).ok()
    consumer.commit_offsets("group", [("t", 0, 1)]).ok()
    consumer.final_offsets("group").ok([("t", 0, 1)])
    assert story.found() == []


def test_read_uncommitted_sees_open_and_aborted_records(story: Story) -> None:
    producer, consumer = story.producer(), story.writer.client("uncommitted")
    producer.begin()
    story.send(producer, "a", 0, 0)
    story.poll(consumer, ("t", 0, 0, "a"))
    story.abort(producer)
    story.final_read([2])
    assert story.found() == []


def test_a_producer_that_is_not_idempotent_may_duplicate_and_reorder_concurrent_sends(story: Story) -> None:
    producer = story.writer.client("producer", idempotent=False)
    first, second = producer.send("t", "a", 0), producer.send("t", "b", 0)
    second.ok(offset=0)
    first.ok(offset=2)
    story.final_read([3], ("t", 0, 0, "b"), ("t", 0, 1, "a"), ("t", 0, 2, "a"))
    assert story.found() == []


def test_records_that_only_the_leader_acknowledged_may_be_lost(story: Story) -> None:
    producer = story.writer.client("producer", acks=1, idempotent=False)
    story.send(producer, "a", 0, 0)
    story.send(producer, "b", 0, 0)
    story.final_read([1], ("t", 0, 0, "b"))
    assert story.found() == []


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_of_unknown_outcome_is_either_for_everybody(story: Story, *, is_committed: bool) -> None:
    producer, consumer = story.producer(), story.consumer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    story.send(producer, "b", 1, 0)
    producer.send_offsets("group", [("in", 0, 5)]).ok()
    producer.commit().unknown("KafkaTimeoutError")
    seen = [("t", 0, 0, "a"), ("t", 1, 0, "b")] if is_committed else []
    story.poll(consumer, *seen)
    story.final_read([2, 2], *seen)
    consumer.final_offsets("group").ok([("in", 0, 5 if is_committed else None)])
    assert story.found() == []


def test_a_commit_is_tried_again_after_an_unknown_outcome(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    producer.commit().unknown("KafkaTimeoutError")
    story.commit(producer)
    story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == []


@pytest.mark.parametrize("outcome", ["unknown", "none"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_send_of_unknown_outcome_may_be_there_or_not(story: Story, outcome: str, *, is_there: bool) -> None:
    call = story.producer().send("t", "a", 0)
    if outcome == "unknown":
        call.unknown("KafkaTimeoutError")
    story.final_read([1], *[("t", 0, 0, "a")] * is_there)
    assert story.found() == []


def test_a_send_recorded_as_unknown_in_a_committed_transaction_may_be_missing(story: Story) -> None:
    producer = story.producer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    producer.send("t", "b", 0).unknown("timed out")
    story.commit(producer)
    story.final_read([2], ("t", 0, 0, "a"))
    assert story.found() == []


def test_a_commit_may_be_visible_before_its_client_gets_the_reply(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    call = producer.commit()
    story.poll(consumer, ("t", 0, 0, "a"))
    call.ok()
    assert story.found() == []


def test_partitions_of_one_transaction_become_visible_one_after_the_other(story: Story) -> None:
    producer, consumer = story.producer(), story.consumer()
    producer.begin()
    story.send(producer, "a", 0, 0)
    story.send(producer, "b", 1, 0)
    story.commit(producer)
    story.poll(consumer, ("t", 0, 0, "a"))
    story.poll(consumer, ("t", 1, 0, "b"))
    assert story.found() == []


def test_sends_that_overlap_may_lie_in_any_order_across_clients(story: Story) -> None:
    one, other = story.producer("one"), story.producer("other")
    first, second = one.send("t", "a", 0), other.send("t", "b", 0)
    first.ok(offset=1)
    second.ok(offset=0)
    assert story.found() == []


def test_records_acknowledged_after_the_final_read_began_may_be_missing_in_it(story: Story) -> None:
    producer, reader = story.producer(), story.consumer("final")
    read = reader.final_read([("t", 0, 0, 0)])
    story.send(producer, "a", 0, 0)
    read.ok([])
    assert story.found() == []


def test_records_that_retention_removed_are_not_lost(story: Story) -> None:
    _, _, c = three_records(story)
    story.consumer("final").final_read([("t", 0, 2, 3)]).ok([c])
    assert story.found() == []


def test_records_of_a_compacted_topic_may_be_missing(story: Story) -> None:
    a, _, c = three_records(story)
    story.writer.topic("t", compacted=True)
    story.poll(story.consumer(), a, c)
    story.final_read([3], c)
    assert story.found() == []


def test_an_aborted_transactions_inputs_are_processed_again(story: Story) -> None:
    app = story.producer("app")
    app.begin()
    call = app.send("t", "o1", 0, ["i1"])
    call.ok(offset=0)
    app.send_offsets("group", [("in", 0, 1)]).ok()
    story.abort(app)
    process(story, app, "o2", 2, ["i1"], 1)
    assert story.found() == []


def test_an_application_may_seek_back_on_purpose(story: Story) -> None:
    app = story.producer("app")
    process(story, app, "o1", 0, [], 7)
    app.seek([("in", 0, 3)])
    process(story, app, "o2", 2, [], 4)
    assert story.found() == []


def test_a_plain_commit_moves_a_group_back(story: Story) -> None:
    app = story.producer("app")
    process(story, app, "o1", 0, [], 7)
    story.consumer("admin").commit_offsets("group", [("in", 0, 0)]).ok()
    process(story, app, "o2", 2, [], 4)
    assert story.found() == []


def test_two_groups_process_the_same_input(story: Story) -> None:
    app = story.producer("app")
    process(story, app, "o1", 0, ["i1"], 1)
    app.begin()
    app.send("t", "o2", 0, ["i1"]).ok(offset=2)
    app.send_offsets("other group", [("in", 0, 1)]).ok()
    story.commit(app)
    assert story.found() == []


def test_topics_that_the_history_does_not_write_and_null_values_are_not_judged(story: Story) -> None:
    story.poll(story.consumer(), ("elsewhere", 0, 3, "x"), ("elsewhere", 0, 9, None))
    assert check_history(story.lines).is_valid
