"""Consumer groups, by the classic protocol and by that of KIP-848."""

from __future__ import annotations

import confluent_kafka as ck

from tests.compat.confluent_kafka.kafka import (
    TIMEOUT_S,
    Member,
    create_topic,
    new_admin,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
)
from tests.compat.python_checks import Check

CLASSIC = {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000}


def group_resumes_at_commit(check: Check) -> None:
    topic, group = create_topic(check, "topic", 1), check.name("group")
    produce(new_producer(check), topic, numbers(0, 30))
    first = new_consumer(check, group)
    first.subscribe([topic])
    messages = read(check, first, 30)
    first.commit(message=messages[11], asynchronous=False)
    first.close()
    second = new_consumer(check, group)
    second.subscribe([topic])
    values = [message.value().decode() for message in read(check, second, 18)]
    check.equal("records after the commit", values, numbers(12, 30))
    [committed] = second.committed([ck.TopicPartition(topic, 0)], TIMEOUT_S)
    check.equal("committed offset", committed.offset, 12)
    second.close()


def group_with_eager_rebalances(check: Check) -> None:
    _rebalance(check, partition_assignment_strategy="range", **CLASSIC)


def group_with_cooperative_rebalances(check: Check) -> None:
    _rebalance(check, partition_assignment_strategy="cooperative-sticky", **CLASSIC)


def group_of_the_consumer_protocol(check: Check) -> None:
    _rebalance(check, group_protocol="consumer", group_remote_assignor="uniform")
    admin = new_admin(check)
    listed = admin.list_consumer_groups(types={ck.ConsumerGroupType.CONSUMER}).result(TIMEOUT_S).valid
    check.equal("the group is of the new type", check.name("group") in [group.group_id for group in listed], True)


def _rebalance(check: Check, **more: object) -> None:
    """Members come and go while records are written; each record is read by one member, once."""
    topic, group = create_topic(check, "topic", 6), check.name("group")
    producer = new_producer(check)

    def write(start: int, end: int) -> None:
        for partition in range(6):
            produce(
                producer, topic, [str(number) for number in range(start, end) if number % 6 == partition], partition
            )

    first = Member(check, group, [topic], **more)
    check.until("the only member has all partitions", lambda: len(first.held) == 6)
    write(0, 60)
    check.until("the only member has read all", lambda: len(first.values) == 60)
    second = Member(check, group, [topic], **more)
    check.until("two members share", lambda: len(first.held) == len(second.held) == 3)
    check.equal("partitions of both", first.held | second.held, set(range(6)))
    write(60, 120)
    check.until("both have read all", lambda: len(first.values) + len(second.values) == 120)
    check.equal("records of the second member", len(second.values), 30)
    first.leave()
    check.until("the last member has all", lambda: len(second.held) == 6)
    write(120, 180)
    check.until("the last member has read all", lambda: len(second.values) == 90)
    second.leave()
    check.equal("all that was read", sorted(first.values + second.values), sorted(numbers(0, 180)))


def group_static_member(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    admin = new_admin(check)

    def members() -> dict[str, str]:
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return {member.group_instance_id: member.member_id for member in described.members}

    first = Member(check, group, [topic], group_instance_id="first", **CLASSIC)
    second = Member(check, group, [topic], group_instance_id="second", **CLASSIC)
    check.until("two members share", lambda: len(first.held) == len(second.held) == 1)
    before, held = members(), second.held
    second.leave()  # a static member leaves without saying so
    check.equal("members while one is away", members(), before)
    second = Member(check, group, [topic], group_instance_id="second", **CLASSIC)
    check.until("the member is back where it was", lambda: second.held == held)
    after = members()
    check.equal("instances", sorted(after), ["first", "second"])
    check.equal("the other member's id is the same", after["first"], before["first"])
    check.equal("the member that returned has a new id", after["second"] != before["second"], True)
    first.leave()
    second.leave()


def group_by_regular_expression(check: Check) -> None:
    topics = [f"{check.name('topic')}-{suffix}" for suffix in "abd"]
    producer = new_producer(check)
    produce(producer, topics[0], ["a"])
    member = Member(
        check,
        check.name("group"),
        [f"^{check.name('topic')}-[a-c]$"],
        topic_metadata_refresh_interval_ms=300,
        **CLASSIC,
    )
    check.until("the topic that was there is read", lambda: member.values == ["a"])
    produce(producer, topics[2], ["d"])
    produce(producer, topics[1], ["b"])
    check.until("the topic that came later is read", lambda: len(member.values) == 2)
    check.equal("records", member.values, ["a", "b"])
    member.leave()
