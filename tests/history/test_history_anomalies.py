"""Each anomaly is found in a history in which it is planted, and proved by the lines that matter and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from fencepost.history.checker import check_history
from fencepost.history.findings import Anomaly
from fencepost.history.writer import ClientHistory, HistoryWriter, ReadRecord


class Story:
    """A history under construction; `line` is the number of its last line."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.writer = HistoryWriter(self.lines.append, now_ms=lambda: len(self.lines))

    @property
    def line(self) -> int:
        return len(self.lines)

    def producer(self, name: str = "producer") -> ClientHistory:
        return self.writer.client(name, transactional_id=name, isolation_level="read_committed")

    def consumer(self, name: str = "consumer") -> ClientHistory:
        return self.writer.client(name, isolation_level="read_committed")

    def send(self, client: ClientHistory, value: str, partition: int, offset: int) -> tuple[int, int]:
        """The lines of the invocation and of the acknowledgement."""
        call = client.send("t", value, partition)
        sent_line = self.line
        call.ok(offset=offset)
        return sent_line, self.line

    def commit(self, client: ClientHistory) -> int:
        client.commit().ok()
        return self.line

    def abort(self, client: ClientHistory) -> int:
        client.abort().ok()
        return self.line

    def poll(self, client: ClientHistory, *records: ReadRecord) -> int:
        client.polled(records)
        return self.line

    def final_read(self, end_offsets: Iterable[int], *records: ReadRecord) -> int:
        reader = self.consumer("final")
        reader.final_read([("t", partition, 0, end) for partition, end in enumerate(end_offsets)]).ok(records)
        return self.line

    def found(self, *, forbid_write_cycles: bool = False) -> list[tuple[Anomaly, list[int]]]:
        report = check_history(self.lines, forbid_write_cycles=forbid_write_cycles)
        return [(finding.anomaly, [proof.line for proof in finding.proofs]) for finding in report.findings]


@pytest.fixture
def story() -> Story:
    return Story()


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


def three_records(story: Story) -> tuple[ReadRecord, ReadRecord, ReadRecord]:
    producer = story.producer()
    for offset, value in enumerate("abc"):
        story.send(producer, value, 0, offset)
    return ("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 0, 2, "c")


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


def test_transactions_whose_writes_lie_against_the_order_of_time_are_a_write_cycle(story: Story) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    first = story.send(one, "a", 0, 1)
    story.commit(one)
    other.begin()
    second = story.send(other, "b", 0, 0)
    story.commit(other)
    assert story.found() == [(Anomaly.WRITE_CYCLE, [*first, *second])]


def test_concurrent_transactions_in_opposite_orders_are_a_write_cycle_only_where_that_is_forbidden(
    story: Story,
) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    began_one = story.line
    other.begin()
    began_other = story.line
    places = [
        story.send(one, "a", 0, 0),
        story.send(other, "b", 0, 1),
        story.send(other, "c", 1, 0),
        story.send(one, "d", 1, 1),
    ]
    story.commit(one)
    story.commit(other)
    lines = [began_one, began_other, *(acknowledged for _, acknowledged in places)]
    assert story.found(forbid_write_cycles=True) == [(Anomaly.WRITE_CYCLE, lines)]
    assert story.found() == []
    assert check_history(story.lines).permitted_count == 1


def test_transactions_that_read_from_each_other_are_a_read_cycle(story: Story) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    other.begin()
    sent_a, _ = story.send(one, "a", 0, 0)
    sent_b, _ = story.send(other, "b", 1, 0)
    read_b = story.poll(one, ("t", 1, 0, "b"))
    read_a = story.poll(other, ("t", 0, 0, "a"))
    story.commit(one)
    story.commit(other)
    assert story.found() == [(Anomaly.READ_CYCLE, [sent_a, sent_b, read_b, read_a])]


def test_the_smallest_of_many_read_cycles_is_shown(story: Story) -> None:
    clients = [story.producer(name) for name in "pqrs"]
    for client in clients:
        client.begin()
        story.send(client, f"of {client.name}", 0, ord(client.name))
    for reader, source in [("q", "p"), ("r", "q"), ("s", "r"), ("p", "s"), ("q", "r")]:
        story.poll(clients["pqrs".index(reader)], ("t", 0, ord(source), f"of {source}"))
        clients["pqrs".index(reader)].seek([("t", 0, None)])
    for client in clients:
        story.commit(client)
    report = check_history(story.lines)
    cycle = next(finding for finding in report.findings if finding.anomaly is Anomaly.READ_CYCLE)
    assert '"q"' in cycle.summary
    assert '"r"' in cycle.summary
    assert "each of 2 transactions" in cycle.summary


def process(story: Story, app: ClientHistory, value: str, place: int, inputs: list[str], offset: int) -> list[int]:
    """One consume-transform-produce transaction; the lines of the send, the offsets and the commit."""
    app.begin()
    sent, _ = (app.send("t", value, 0, inputs), None)
    sent_line = story.line
    sent.ok(offset=place)
    call = app.send_offsets("group", [("in", 0, offset)])
    offsets_line = story.line
    call.ok()
    return [sent_line, offsets_line, story.commit(app)]


def test_an_input_in_two_committed_outputs_is_processed_twice(story: Story) -> None:
    app = story.producer("app")
    first = process(story, app, "o1", 0, ["i1", "i2"], 2)
    second = process(story, app, "o2", 2, ["i2"], 2)
    assert story.found() == [(Anomaly.INPUT_PROCESSED_TWICE, [first[0], first[2], second[0], second[2]])]


def test_an_input_below_the_committed_offset_in_no_committed_output_is_never_processed(story: Story) -> None:
    source = story.writer.client("source")
    sent = []
    for offset in range(3):
        call = source.send("in", f"i{offset}", 0)
        sent.append(story.line)
        call.ok(offset=offset)
    app = story.producer("app")
    process(story, app, "o1", 0, ["i0"], 1)
    second = process(story, app, "o2", 2, ["i2"], 3)
    assert story.found() == [(Anomaly.INPUT_NEVER_PROCESSED, [sent[1], *second[1:]])]


def test_a_committed_transaction_that_takes_its_groups_offset_back_is_an_offset_regression(story: Story) -> None:
    app = story.producer("app")
    first = process(story, app, "o1", 0, [], 7)
    second = process(story, app, "o2", 2, [], 4)
    assert story.found() == [(Anomaly.OFFSET_REGRESSION, [*first[1:], *second[1:]])]
