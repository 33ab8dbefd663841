"""Consumer groups."""

from __future__ import annotations

from kafka import TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata

from tests.compat.kafka_python.kafka import (
    VERSION,
    Member,
    create_topic,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
    write,
)
from tests.compat.python_checks import Check


def group_resumes_at_commit(check: Check) -> None:
    topic, group = create_topic(check, "topic", 1), check.name("group")
    write(check, topic, numbers(0, 30))
    first = new_consumer(check, topic, group_id=group)
    read(check, first, 30)
    whole = TopicPartition(topic, 0)
    first.commit({whole: OffsetAndMetadata(12, "a note", -1)})
    first.close()
    second = new_consumer(check, topic, group_id=group)
    values = [record.value.decode() for record in read(check, second, 18)]
    check.equal("records after the commit", values, numbers(12, 30))
    check.equal("committed offset", second.committed(whole), 12)
    check.equal("its metadata", second.committed(whole, metadata=True).metadata, "a note")
    second.close()


def group_with_range_assignment(check: Check) -> None:
    _rebalance(check, RangePartitionAssignor)


def group_with_round_robin_assignment(check: Check) -> None:
    _rebalance(check, RoundRobinPartitionAssignor)


def group_with_cooperative_assignment(check: Check) -> None:
    # Release 2.3 has none.
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

    _rebalance(check, CooperativeStickyAssignor)


def _rebalance(check: Check, assignor: object) -> None:
    """Members come and go while records are written; each record is read by a member."""
    topic, group = create_topic(check, "topic", 6), check.name("group")
    producer = new_producer(check)

    def write_all(start: int, end: int) -> None:
        for partition in range(6):
            produce(
                producer, topic, [str(number) for number in range(start, end) if number % 6 == partition], partition
            )

    first = Member(check, group, [topic], partition_assignment_strategy=[assignor])
    check.until("the only member has all partitions", lambda: len(first.held) == 6)
    write_all(0, 60)
    check.until("the only member has read all", lambda: len(first.values) == 60)
    second = Member(check, group, [topic], partition_assignment_strategy=[assignor])
    check.until("two members share", lambda: len(first.held) == len(second.held) == 3)
    check.equal("partitions of both", first.held | second.held, set(range(6)))
    write_all(60, 120)
    check.until("both have read all", lambda: len(first.values) + len(second.values) == 120)
    check.equal("records of the second member", len(second.values), 30)
    first.leave()
    check.until("the last member has all", lambda: len(second.held) == 6)
    write_all(120, 180)
    check.until("the last member has read all", lambda: len(second.values) == 90)
    second.leave()
    producer.close()
    check.equal("all that was read", sorted(first.values + second.values), sorted(numbers(0, 180)))


def group_static_member(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    first = Member(check, group, [topic], group_instance_id="first")
    second = Member(check, group, [topic], group_instance_id="second")
    check.until("two members share", lambda: len(first.held) == len(second.held) == 1)
    held = second.held
    generation = _generation(first)
    second.leave()  # a static member leaves without saying so
    second = Member(check, group, [topic], group_instance_id="second")
    check.until("the member is back where it was", lambda: second.held == held)
    check.equal("generation after the return", _generation(second), generation)
    first.leave()
    second.leave()


def _generation(member: Member) -> int:
    """The generation of a member's group; release 2.3 tells nobody, so it is always 0 there."""
    return int(member.consumer.group_metadata().generation_id) if VERSION >= 3 else 0


def group_by_pattern(check: Check) -> None:
    group, pattern = check.name("group"), f"^{check.name('topic')}-[a-c]$"
    for suffix in "abd":
        write(check, f"{check.name('topic')}-{suffix}", [suffix])
    first = Member(check, group, (), pattern)
    check.until("the topics that match are read", lambda: len(first.values) == 2)
    first.leave()
    check.equal("records", sorted(first.values), ["a", "b"])
    write(check, f"{check.name('topic')}-c", ["c"])
    second = Member(check, group, (), pattern)
    check.until("the topic that came later is read", lambda: bool(second.values))
    second.leave()
    check.equal("records of the next member", second.values, ["c"])
