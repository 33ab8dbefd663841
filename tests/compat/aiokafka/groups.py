"""Consumer groups, and what administrators do with them and with topics."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.aiokafka.kafka import (
    Member,
    administering,
    consuming,
    create_topic,
    error_of,
    numbers,
    produce,
    producing,
    read,
    read_all,
    until,
    write,
)
from tests.compat.python_checks import Check


async def group_resumes_at_commit(check: Check) -> None:
    topic, group = await create_topic(check, "topic", 1), check.name("group")
    await write(check, topic, numbers(0, 30))
    whole = TopicPartition(topic, 0)
    async with consuming(check, topic, group_id=group) as first:
        await read(first, 30)
        await first.commit({whole: (12, "a note")})
    async with consuming(check, topic, group_id=group) as second:
        values = [record.value.decode() for record in await read(second, 18)]
        check.equal("records after the commit", values, numbers(12, 30))
        check.equal("committed offset", await second.committed(whole), 12)


async def group_with_range_assignment(check: Check) -> None:
    await _rebalance(check, RangePartitionAssignor)


async def group_with_round_robin_assignment(check: Check) -> None:
    await _rebalance(check, RoundRobinPartitionAssignor)


async def group_with_sticky_assignment(check: Check) -> None:
    await _rebalance(check, StickyPartitionAssignor)


async def _rebalance(check: Check, assignor: object) -> None:
    """Members come and go while records are written; each record is read by a member."""
    topic, group = await create_topic(check, "topic", 6), check.name("group")

    async def write_all(start: int, end: int) -> None:
        async with producing(check) as producer:
            for partition in range(6):
                share = [str(number) for number in range(start, end) if number % 6 == partition]
                await produce(producer, topic, share, partition)

    first = Member(check, group, [topic], partition_assignment_strategy=[assignor])
    await until("the only member has all partitions", lambda: len(first.held) == 6)
    await write_all(0, 60)
    await until("the only member has read all", lambda: len(first.values) == 60)
    second = Member(check, group, [topic], partition_assignment_strategy=[assignor])
    await until("two members share", lambda: len(first.held) == len(second.held) == 3)
    check.equal("partitions of both", first.held | second.held, set(range(6)))
    await write_all(60, 120)
    await until("both have read all", lambda: len(first.values) + len(second.values) == 120)
    check.equal("records of the second member", len(second.values), 30)
    await first.leave()
    await until("the last member has all", lambda: len(second.held) == 6)
    await write_all(120, 180)
    await until("the last member has read all", lambda: len(second.values) == 90)
    await second.leave()
    check.equal("all that was read", sorted(first.values + second.values), sorted(numbers(0, 180)))


async def group_static_member(check: Check) -> None:
    topic, group = await create_topic(check, "topic", 2), check.name("group")
    first = Member(check, group, [topic], group_instance_id="first")
    second = Member(check, group, [topic], group_instance_id="second")
    await until("two members share", lambda: len(first.held) == len(second.held) == 1)
    held = second.held
    await second.leave()  # a static member leaves without saying so
    second = Member(check, group, [topic], group_instance_id="second")
    await until("the member is back where it was", lambda: second.held == held)
    check.equal("the other member has not moved", first.held | held, {0, 1})
    await first.leave()
    await second.leave()


async def admin_topics(check: Check) -> None:
    topic, missing = await create_topic(check, "topic", 2), check.name("missing")
    async with administering(check) as admin:

        async def create(name: str, partitions: int = 1, replicas: int = 1) -> int:
            response = await admin.create_topics([NewTopic(name, partitions, replicas)])
            return int(response.topic_errors[0][1])

        check.equal("create one that exists", await create(topic), 36)
        check.equal("create with too many replicas", await create(missing, replicas=1_000), 38)
        check.equal("create without partitions", await create(missing, partitions=0), 37)
        check.equal("create with a bad name", await create("a/b"), 17)
        grown = await admin.create_partitions({topic: NewPartitions(5)})
        check.equal("grow", [error[1] for error in grown.topic_errors], [0])

        async def has_grown() -> bool:
            return len((await admin.describe_topics([topic]))[0]["partitions"]) == 5

        await until("it has grown", has_grown)
        deleted = await admin.delete_topics([topic])
        check.equal("delete", list(deleted.topic_error_codes), [(topic, 0)])

        async def is_gone() -> bool:
            return topic not in await admin.list_topics()

        await until("it is gone", is_gone)


async def admin_groups(check: Check) -> None:
    topic, group = await create_topic(check, "topic", 1), check.name("group")
    await write(check, topic, numbers(0, 5))
    member = Member(check, group, [topic])
    async with administering(check) as admin:

        async def committed() -> bool:
            offsets = await admin.list_consumer_group_offsets(group)
            return [entry.offset for entry in offsets.values()] == [5]

        await until("all is committed", committed)
        listed = [each[0] for each in await admin.list_consumer_groups()]
        check.equal("listed", group in listed, True)
        [described] = (await admin.describe_consumer_groups([group]))[0].groups
        check.equal("described", (described[0], described[1], described[2], len(described[5])), (0, group, "Stable", 1))
        await member.leave()

        async def is_empty() -> bool:
            [now] = (await admin.describe_consumer_groups([group]))[0].groups
            return str(now[2]) == "Empty"

        await until("the group is empty", is_empty)


async def admin_delete_records(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    await write(check, topic, numbers(0, 20))
    whole = TopicPartition(topic, 0)
    async with administering(check) as admin:
        deleted = await admin.delete_records({whole: RecordsToDelete(before_offset=7)})
        check.equal("low watermarks", deleted, {whole: 7})
        check.equal("records", await read_all(check, topic), numbers(7, 20))
        refused = await error_of(admin.delete_records({whole: RecordsToDelete(before_offset=21)}))
        check.equal("delete beyond the end", refused, "OffsetOutOfRangeError")
