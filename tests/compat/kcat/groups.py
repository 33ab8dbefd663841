"""Balanced consumers: members of a group share the partitions, hand them over, and go on at what is committed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.compat.kcat.tool import (
    PARTITION_COUNT,
    Running,
    create_topic,
    numbers,
    offset,
    produce,
    read,
    succeed,
)
from tests.compat.python_checks import Check

EARLIEST = "auto.offset.reset=earliest"
# The shortest time-out of a session that a broker takes by default.
SESSION = ("session.timeout.ms=6000", "heartbeat.interval.ms=200")
REBALANCED = re.compile(r"% Group \S+ rebalanced.*?: ?(incremental )?(?P<what>assign|revoke).*?: (?P<list>.*)")
HELD = re.compile(r"(\S+) \[(\d+)\]")


class Member(Running):
    """A member of a group. It knows which partitions it holds, and has `lines` of TOPIC PARTITION OFFSET VALUE."""

    def __init__(self, check: Check, group: str, topics: Sequence[str], config: Sequence[str] = ()) -> None:
        self.held: set[tuple[str, int]] = set()
        settings = [EARLIEST, *SESSION, "auto.commit.interval.ms=100", *config]
        super().__init__(check, "-G", group, "-E", "-u", "-f", "%t %p %o %s\\n", *topics, config=settings)

    def _hear(self, line: str) -> None:
        super()._hear(line)
        rebalanced = REBALANCED.match(line)
        if rebalanced is None:
            return
        partitions = {(topic, int(partition)) for topic, partition in HELD.findall(rebalanced["list"])}
        # A new set each time: others look at it while it changes.
        self.held = self.held | partitions if rebalanced["what"] == "assign" else self.held - partitions

    @property
    def values(self) -> list[str]:
        return [line.split(" ", 3)[3] for line in self.lines]


def group_resumes_at_commit(check: Check) -> None:
    topic, group = create_topic(check), check.name("group")
    for partition in range(PARTITION_COUNT):
        produce(check, topic, [f"{partition}-{number}" for number in range(10)], partition)
    every = [f"{partition}-{number}" for partition in range(PARTITION_COUNT) for number in range(10)]

    def consume(*arguments: str) -> list[str]:
        return succeed(check, "-G", group, "-q", *arguments, topic, config=[EARLIEST]).splitlines()

    first = consume("-c", "7")
    check.equal("records of the first", len(first), 7)
    second = consume("-c", "11")
    check.equal("records of the second", len(second), 11)
    third = consume("-e")
    check.equal("each record once", sorted(first + second + third), every)
    check.equal("nothing is left", consume("-e"), [])
    produce(check, topic, ["one more"], 1)
    check.equal("what came later", consume("-e"), ["one more"])
    # A consumer outside of the group may begin at what the group has committed.
    produce(check, topic, ["yet another"], 2)
    stored = read(check, topic, "-p", "2", "-o", "stored", config=[f"group.id={group}"])
    check.equal("from the stored offset", stored, ["yet another"])


def group_with_eager_rebalances(check: Check) -> None:
    _rebalance(check, "range")


def group_with_round_robin_rebalances(check: Check) -> None:
    _rebalance(check, "roundrobin")


def group_with_cooperative_rebalances(check: Check) -> None:
    _rebalance(check, "cooperative-sticky")


def _rebalance(check: Check, assignor: str) -> None:
    """Members come and go while records are written; each record is read by one member, once."""
    topic, group = create_topic(check), check.name("group")
    config = [f"partition.assignment.strategy={assignor}"]
    members: list[Member] = []

    def shares() -> list[int]:
        return sorted(len(member.held) for member in members)

    def write(start: int, end: int) -> None:
        for partition in range(PARTITION_COUNT):
            values = [str(number) for number in range(start, end) if number % PARTITION_COUNT == partition]
            produce(check, topic, values, partition)
        check.comes_to("records read", lambda: sum(len(member.lines) for member in everybody), end)

    everybody: list[Member] = []
    try:
        for wanted in ([3], [1, 2], [1, 1, 1]):
            everybody.append(Member(check, group, [topic], config))
            members.append(everybody[-1])
            check.comes_to("shares", shares, wanted)
            held = [partition for member in members for partition in member.held]
            check.equal("all are held", sorted(held), [(topic, partition) for partition in range(PARTITION_COUNT)])
            write(30 * (len(members) - 1), 30 * len(members))
        check.equal("records of the last", len(members[2].lines), 10)
        for turn, wanted in enumerate(([1, 2], [3])):
            check.equal("exit code of one that leaves", members.pop(0).interrupt(), 0)
            check.comes_to("shares", shares, wanted)
            write(90 + 30 * turn, 120 + 30 * turn)
        check.equal("exit code of the last", members.pop().interrupt(), 0)
    finally:
        for member in members:
            member.kill()
    check.equal(
        "each record once", sorted(int(value) for member in everybody for value in member.values), list(range(150))
    )
    for member in everybody:
        check.equal("in the order of their partitions", _in_order(member.lines), True)


def _in_order(lines: Sequence[str]) -> bool:
    """Whether the offsets of each partition only grow."""
    last: dict[tuple[str, str], int] = {}
    for line in lines:
        topic, partition, record_offset, _ = line.split(" ", 3)
        if int(record_offset) <= last.get((topic, partition), -1):
            return False
        last[topic, partition] = int(record_offset)
    return True


def group_static_member(check: Check) -> None:
    topic, group = create_topic(check), check.name("group")
    with (
        Member(check, group, [topic], ["group.instance.id=first"]) as first,
        Member(check, group, [topic], ["group.instance.id=second"]) as second,
    ):
        check.comes_to("partitions", lambda: len(first.held | second.held), PARTITION_COUNT)
        check.until("both have some", lambda: 0 < len(first.held) < PARTITION_COUNT)
        rebalances, held = len(first.errors), second.held
        second.kill()  # and its place is kept
        with Member(check, group, [topic], ["group.instance.id=second"]) as again:
            check.comes_to("partitions of the one that returned", lambda: again.held, held)
            for _, partition in sorted(held):
                produce(check, topic, [f"to {partition}"], partition)
            check.comes_to(
                "records", lambda: sorted(again.values), [f"to {partition}" for _, partition in sorted(held)]
            )
            check.equal("the other one noticed nothing", first.errors[rebalances:], [])
            check.equal("exit code", again.interrupt(), 0)
        check.equal("exit code", first.interrupt(), 0)


def group_by_regular_expression(check: Check) -> None:
    names = [f"topic-{suffix}" for suffix in "abd"]
    topics = [check.name(name) for name in names]
    create_topic(check, names[0])
    pattern = f"^topic-[a-c]-{check.name('')[1:]}$"
    with Member(check, check.name("group"), [pattern], ["topic.metadata.refresh.interval.ms=300"]) as member:
        produce(check, topics[0], ["a"])
        check.comes_to("what was there is read", lambda: member.values, ["a"])
        produce(check, topics[2], ["d"])
        produce(check, topics[1], ["b"])
        check.comes_to("what came later is read", lambda: member.values, ["a", "b"])
        wanted = {(topic, partition) for topic in topics[:2] for partition in range(PARTITION_COUNT)}
        check.comes_to("partitions", lambda: member.held, wanted)
        check.equal("exit code", member.interrupt(), 0)


def group_member_killed(check: Check) -> None:
    """A member that says nothing any more loses its partitions after its session's time-out."""
    topic, group = create_topic(check), check.name("group")
    with Member(check, group, [topic]) as survivor, Member(check, group, [topic]) as victim:
        check.until("both have some", lambda: len(victim.held) > 0 and len(survivor.held | victim.held) == 3)
        check.until("and share", lambda: not survivor.held & victim.held)
        lost = victim.held
        victim.kill()
        for _, partition in lost:
            produce(check, topic, numbers(0, 5), partition)
        check.comes_to("the other one takes over", lambda: len(survivor.held), PARTITION_COUNT)
        check.comes_to("records", lambda: sorted(survivor.values), sorted(numbers(0, 5) * len(lost)))
        check.equal("ends", [offset(check, topic, partition, -1) for _, partition in sorted(lost)], [5] * len(lost))
        check.equal("exit code", survivor.interrupt(), 0)
