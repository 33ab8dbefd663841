"""Groups: how long many members take to share many partitions, and what the commits of many groups cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from scripts.benchmarks.async_client import AsyncClient
from scripts.benchmarks.client import connect, create_topic, find_group_coordinator, require_success
from scripts.benchmarks.figures import COMPARED_WITH_LIMIT, Broker, Figure, Round, Sample, Target
from scripts.benchmarks.group_members import ClassicGroupMember, ConsumerGroupMember, GroupMember

TOPIC = "measured"
GROUP = "measured"
SETTLE_PATIENCE_S = 60.0
COMMIT_INTERVAL_S = 1.0
KINDS: tuple[tuple[str, type[GroupMember]], ...] = (
    ("classic protocol", ClassicGroupMember),
    ("consumer protocol", ConsumerGroupMember),
)


# Many members of one group


def measure_settling(round_: Round) -> Iterator[Sample]:
    for case, kind in KINDS:
        data_directory = round_.scratch / kind.__name__
        data_directory.mkdir()
        broker = round_.subject.launch(data_directory, {})
        try:
            with connect(broker) as client:
                create_topic(client, TOPIC, round_.sizes["partitions"])
                find_group_coordinator(client, GROUP)
            round_.say(f"{case}: {round_.sizes['members']:,} members join")
            before_s = broker.cpu_s()
            for quantity, duration_s in asyncio.run(_settle(broker, round_, kind)).items():
                yield Sample(quantity, duration_s, "s", case)
            yield Sample("CPU time of the broker", broker.cpu_s() - before_s, "s", case)
        finally:
            broker.kill()


async def _settle(broker: Broker, round_: Round, kind: type[GroupMember]) -> dict[str, float]:
    """All start together; when that is long over, one more comes."""
    fleet = _Fleet(broker, kind, round_.sizes["partitions"])
    try:
        together_s = await fleet.join(round_.sizes["members"])
        await asyncio.sleep(round_.sizes["pause_seconds"])
        return {"settled after the last join": together_s, "settled after one more join": await fleet.join(1)}
    finally:
        await fleet.close()


class _Fleet:
    """Members of one group, and whether they have come to share its partitions."""

    def __init__(self, broker: Broker, kind: type[GroupMember], partition_count: int) -> None:
        self._broker = broker
        self._kind = kind
        self._partition_count = partition_count
        self._members: list[GroupMember] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._settled = asyncio.Event()

    async def join(self, count: int) -> float:
        """Let `count` more join at once; seconds from the last join until all have their part."""
        clients = [await AsyncClient.connect(self._broker.address) for _ in range(count)]
        joining = [self._kind(client, GROUP, TOPIC, self._partition_count) for client in clients]
        self._members += joining
        self._settled.clear()
        await asyncio.gather(*(member.join() for member in joining))
        joined_at_s = time.monotonic()
        self._tasks += [asyncio.create_task(member.stay(self._look)) for member in joining]
        watching = asyncio.create_task(self._settled.wait())
        await asyncio.wait([*self._tasks, watching], timeout=SETTLE_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not watching.done():
            watching.cancel()
            for task in self._tasks:
                if task.done():
                    task.result()
            raise TimeoutError(f"the group did not settle: {sorted(member.epoch for member in self._members)}")
        return time.monotonic() - joined_at_s

    def _look(self) -> None:
        """Settled: in one epoch every member has a fair part, and none has more."""
        members = self._members
        fair_share = self._partition_count // len(members)
        parts = [member.partitions for member in members if len(member.partitions) in (fair_share, fair_share + 1)]
        if (
            len({member.epoch for member in members}) == 1
            and len(parts) == len(members)
            and len(frozenset().union(*parts)) == sum(map(len, parts)) == self._partition_count
        ):
            self._settled.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self._members:
            await member.client.close()


# Commits of many groups


def measure_commits(round_: Round) -> Iterator[Sample]:
    data_directory = round_.scratch / "data"
    data_directory.mkdir()
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            create_topic(client, TOPIC, 1)
            find_group_coordinator(client, GROUP)
        yield from asyncio.run(_commit(broker, round_))
    finally:
        broker.kill()


async def _commit(broker: Broker, round_: Round) -> list[Sample]:
    """Each group has one member on its own connection, which shows that it lives and commits all the time."""
    groups_count, seconds = round_.sizes["groups"], round_.sizes["seconds"]
    round_.say(f"{groups_count:,} groups join")
    clients = [await AsyncClient.connect(broker.address) for _ in range(groups_count)]
    members = [ConsumerGroupMember(client, f"{GROUP}-{number}", TOPIC, 1) for number, client in enumerate(clients)]
    for member in members:
        await member.join()
    round_.say(f"{groups_count:,} groups commit every second for {seconds} s")
    loop = asyncio.get_running_loop()
    began_at_s, cpu_before_s = loop.time(), broker.cpu_s()
    latencies_s: list[float] = []

    async def commit_all_the_time(number: int, member: GroupMember) -> None:
        # Spread over the interval, and on time however long an answer takes.
        due_at_s = began_at_s + COMMIT_INTERVAL_S * number / groups_count
        for turn in range(seconds):
            await asyncio.sleep(due_at_s + turn * COMMIT_INTERVAL_S - loop.time())
            requested_at_s = loop.time()
            require_success(await member.client.call(_commit_request(member, turn)))
            latencies_s.append(loop.time() - requested_at_s)

    await asyncio.gather(*(commit_all_the_time(number, member) for number, member in enumerate(members)))
    cpu_s = broker.cpu_s() - cpu_before_s
    for client in clients:
        await client.close()
    latencies_s.sort()
    return [
        # By the time that this was to take: on a busy machine it takes longer.
        Sample("cores in use", cpu_s / (seconds * COMMIT_INTERVAL_S), "cores"),
        Sample("CPU time per commit", cpu_s / len(latencies_s) * 1e6, "µs"),
        Sample("time of a commit, median", latencies_s[len(latencies_s) // 2] * 1e3, "ms"),
        Sample("time of a commit, 99 of 100", latencies_s[len(latencies_s) * 99 // 100] * 1e3, "ms"),
    ]


def _commit_request(member: GroupMember, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


FIGURES = (
    Figure(
        name="group-settling",
        about="100 members that start together share 1,000 partitions; then one more comes",
        measure=measure_settling,
        sizes={"members": 100, "partitions": 1_000, "pause_seconds": 5},
        small_sizes={"members": 5, "partitions": 20, "pause_seconds": 0},
        targets=(Target("settled after the last join", 3.0),),
    ),
    Figure(
        name="group-commits",
        about="1,000 groups that each commit every second",
        measure=measure_commits,
        sizes={"groups": 1_000, "seconds": 15},
        small_sizes={"groups": 20, "seconds": 2},
        targets=(Target("cores in use", 0.15),),
        subjects=COMPARED_WITH_LIMIT,
        in_the_way="each commit finds the broker asleep. Its Python, 1,500 bytecode instructions, takes twice the time "
        "of a busy broker; the system takes 60 µs for waking and sockets. Then one of 50 files is synced, which takes "
        "more than all that together with its thread, and wakes the broker again: for the limit, too.",
    ),
)
