"""Groups of the consumer protocol (KIP-848) with confluent-kafka, unmodified: members share, come, leave, restart, fall
silent, and live together with members of the classic protocol.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from fencepost import Broker
from tests.support.broker_process import BrokerProcess

Unique = Callable[[str], str]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With short intervals. Sessions outlast a busy machine's pauses; tests of their end shorten those of a group."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SETTINGS) as process:
        yield process
        assert process.is_running, process.output
        assert "Traceback" not in process.output, process.output


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    process.start()
    yield process
    process.kill()


class Member:
    """A consumer, what it has read, by value, and what went wrong: at its connections, and in its group."""

    def __init__(self, broker: BrokerProcess, group: str, *topics: str, **options: Any) -> None:
        self.read: Counter[str] = Counter()
        self.errors: list[KafkaError] = []
        self.refusals: list[KafkaError] = []
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "error_cb": self.errors.append,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe(list(topics))

    @property
    def assigned(self) -> set[tuple[str, int]]:
        return {(owned.topic, owned.partition) for owned in self.consumer.assignment()}

    def poll(self, wait_s: float = 0.05) -> None:
        message = self.consumer.poll(wait_s)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.read[message.value().decode()] += 1
        else:
            self.refusals.append(error)

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


def wait_until(members: Iterable[Member], condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Let members poll in turn until something is so."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, [(member.assigned, member.errors) for member in members]
        for member in members:
            member.poll()


def shared(members: Iterable[Member], wanted: set[tuple[str, int]], *counts: int) -> bool:
    """Whether members have all these partitions, each one of them, as many as the counts say."""
    assigned = [member.assigned for member in members]
    return set().union(*assigned) == wanted and sorted(map(len, assigned)) == sorted(counts)


def partitions(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


def ask(broker: BrokerProcess | Broker, request: Callable[[AdminClient], Any]) -> Any:
    """The answer to a request, or to the only one of several."""
    address = broker.bootstrap_servers if isinstance(broker, Broker) else broker.bootstrap
    admin = AdminClient({"bootstrap.servers": address})  # alive until the answer is there
    asked = request(admin)
    return (next(iter(asked.values())) if isinstance(asked, dict) else asked).result(60)


def create(broker: BrokerProcess | Broker, topic: str, count: int = 4) -> None:
    ask(broker, lambda admin: admin.create_topics([NewTopic(topic, count, 1)]))


def produce(broker: BrokerProcess, topic: str, values: Iterable[int], partition_count: int = 4) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value=str(value), partition=value % partition_count)
    assert producer.flush(60) == 0


def set_session_timeout(broker: BrokerProcess | Broker, group: str, value_ms: int) -> None:
    """Of the sessions of a group: it counts from the next heartbeat of each member on."""
    entry = ConfigEntry("consumer.session.timeout.ms", str(value_ms), incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    ask(broker, lambda admin: admin.incremental_alter_configs([changed]))


def described(broker: BrokerProcess | Broker, group: str) -> Any:
    return ask(broker, lambda admin: admin.describe_consumer_groups([group]))


def test_partitions_move_to_members_that_come_and_back_when_they_leave(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    everything = partitions(topic, 4)
    first = Member(broker, group, topic)
    wait_until([first], lambda: first.assigned == everything)
    second = Member(broker, group, topic)
    wait_until([first, second], lambda: shared([first, second], everything, 2, 2))
    third = Member(broker, group, topic)
    wait_until([first, second, third], lambda: shared([first, second, third], everything, 1, 1, 2))
    first.close()
    wait_until([second, third], lambda: shared([second, third], everything, 2, 2))
    second.close()
    wait_until([third], lambda: third.assigned == everything)
    third.close()
    assert described(broker, group).state is ConsumerGroupState.EMPTY


def test_a_member_that_takes_over_starts_at_the_committed_offset(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    produce(broker, topic, range(100))
    first = Member(broker, group, topic)
    wait_until([first], lambda: first.read.total() == 100)
    first.commit()
    second = Member(broker, group, topic)
    wait_until([first, second], lambda: shared([first, second], partitions(topic, 4), 2, 2))
    produce(broker, topic, range(100, 200))
    wait_until([first, second], lambda: (first.read + second.read).total() >= 200)
    assert first.read + second.read == Counter({str(value): 1 for value in range(200)})
    first.commit()
    second.commit()
    committed = first.consumer.committed([TopicPartition(topic, partition) for partition in range(4)], 60)
    assert [offset.offset for offset in committed] == [50, 50, 50, 50]
    first.close()
    second.close()
    third = Member(broker, group, topic)
    wait_until([third], lambda: third.assigned == partitions(topic, 4))
    produce(broker, topic, [200])
    wait_until([third], lambda: bool(third.read))
    assert third.read == {"200": 1}
    third.close()


def test_a_static_member_that_restarts_finds_its_partitions_untouched(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    static = Member(broker, group, topic, group_instance_id="one")
    other = Member(broker, group, topic, group_instance_id="two")
    wait_until([static, other], lambda: shared([static, other], partitions(topic, 4), 2, 2))
    before, others = static.assigned, other.assigned
    static.close()
    deadline_s = time.monotonic() + 1.0
    wait_until([other], lambda: time.monotonic() > deadline_s)
    assert other.assigned == others, "the session of the one that is away goes on"
    again = Member(broker, group, topic, group_instance_id="one")
    wait_until([again, other], lambda: again.assigned == before)
    assert other.assigned == others
    set_session_timeout(broker, group, 2_000)
    again.close()
    # Nobody comes back this time.
    wait_until([other], lambda: other.assigned == partitions(topic, 4))
    other.close()


def test_an_instance_id_in_use_is_refused_to_others(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    static = Member(broker, group, topic, group_instance_id="one")
    wait_until([static], lambda: static.assigned == partitions(topic, 4))
    thief = Member(broker, group, topic, group_instance_id="one")
    deadline_s = time.monotonic() + 2.0
    wait_until([static, thief], lambda: bool(thief.errors) or time.monotonic() > deadline_s)
    assert thief.assigned == set()
    assert static.assigned == partitions(topic, 4)
    thief.close()
    static.close()


def test_a_pattern_takes_in_topics_that_match_now_and_later(broker: BrokerProcess, unique: Unique) -> None:
    name, group = unique("matching"), unique("group")
    create(broker, f"{name}-a", 2)
    create(broker, f"other-{name}", 2)
    member = Member(broker, group, f"^{name}-.*")
    wait_until([member], lambda: member.assigned == partitions(f"{name}-a", 2))
    create(broker, f"{name}-b", 1)
    everything = partitions(f"{name}-a", 2) | partitions(f"{name}-b", 1)
    wait_until([member], lambda: member.assigned == everything)
    member.close()


def test_topics_that_come_grow_and_go_are_noticed(broker: BrokerProcess, unique: Unique) -> None:
    early, late, group = unique("early"), unique("late"), unique("group")
    create(broker, early, 1)
    member = Member(broker, group, early, late, allow_auto_create_topics=False)
    wait_until([member], lambda: member.assigned == partitions(early, 1))
    create(broker, late, 2)
    wait_until([member], lambda: member.assigned == partitions(early, 1) | partitions(late, 2))
    ask(broker, lambda admin: admin.create_partitions([NewPartitions(early, 3)]))
    wait_until([member], lambda: member.assigned == partitions(early, 3) | partitions(late, 2))
    ask(broker, lambda admin: admin.delete_topics([late]))
    wait_until([member], lambda: member.assigned == partitions(early, 3))
    member.close()


FROZEN = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer", "enable.auto.commit": False
})
consumer.subscribe([sys.argv[3]])
before = None
while True:
    consumer.poll(0.1)
    assigned = sorted(owned.partition for owned in consumer.assignment())
    if assigned != before:
        print(*assigned, flush=True)
    before = assigned
"""


def test_a_member_that_falls_silent_is_fenced_and_joins_again(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    other = Member(broker, group, topic)
    wait_until([other], lambda: other.assigned == partitions(topic, 4))
    command = [sys.executable, "-c", FROZEN, broker.bootstrap, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            wait_until([other], lambda: len(other.assigned) == 2)
            wait_until([other], lambda: len(described(broker, group).members) == 2)
            set_session_timeout(broker, group, 3_000)
            process.send_signal(signal.SIGSTOP)
            wait_until([other], lambda: other.assigned == partitions(topic, 4))
            assert len(described(broker, group).members) == 1
            process.send_signal(signal.SIGCONT)
            wait_until([other], lambda: len(other.assigned) == 2)
            set_session_timeout(broker, group, 30_000)
            wait_until([other], lambda: has_settled(described(broker, group), 2))
        finally:
            process.kill()
    other.close()


def test_a_group_outlives_its_broker(own_broker: BrokerProcess) -> None:
    broker, topic, group = own_broker, "orders", "group"
    create(broker, topic)
    members = [Member(broker, group, topic) for _ in range(2)]
    wait_until(members, lambda: shared(members, partitions(topic, 4), 2, 2))
    before = {member.member_id: assigned_to(member) for member in described(broker, group).members}
    for turn in range(1, 4):
        produce(broker, topic, range(turn * 100 - 100, turn * 100))
        wait_until(members, partial(have_read, members, turn * 100 - 50))
        for member in members:
            if member.read:
                member.commit()
        broker.restart_after_kill()
        wait_until(members, partial(have_read, members, turn * 100))
        for member in members:
            member.commit()
    after = {member.member_id: assigned_to(member) for member in described(broker, group).members}
    assert after == before, "nobody had to join again"
    assert members[0].read + members[1].read == Counter({str(value): 1 for value in range(300)})
    for member in members:
        member.close()


def has_settled(group: Any, count: int) -> bool:
    """Whether a group has this number of members, and all have what they shall have."""
    return group.state is ConsumerGroupState.STABLE and len(group.members) == count


def have_read(members: Iterable[Member], count: int) -> bool:
    return sum(member.read.total() for member in members) >= count


def assigned_to(member: Any) -> list[tuple[str, int]]:
    return sorted((owned.topic, owned.partition) for owned in member.assignment.topic_partitions)


def test_administrators_see_groups_members_and_assignments(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    members = [
        Member(broker, group, topic, client_id=f"client-{number}", group_remote_assignor="range") for number in range(2)
    ]
    wait_until(members, lambda: shared(members, partitions(topic, 4), 2, 2))
    wait_until(members, lambda: described(broker, group).state is ConsumerGroupState.STABLE)
    shown = described(broker, group)
    assert (shown.group_id, shown.type, shown.is_simple_consumer_group) == (group, ConsumerGroupType.CONSUMER, False)
    assert (shown.partition_assignor, shown.coordinator.port) == ("range", broker.port)
    assert sorted(member.client_id for member in shown.members) == ["client-0", "client-1"]
    for member in shown.members:
        assert member.host == "/127.0.0.1"
        assert assigned_to(member) in ([(topic, 0), (topic, 1)], [(topic, 2), (topic, 3)])
        assert member.target_assignment.topic_partitions == member.assignment.topic_partitions
    listed = ask(broker, lambda admin: admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER})).valid
    assert [(found.state, found.type) for found in listed if found.group_id == group] == [
        (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    ]
    listed = ask(broker, lambda admin: admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC})).valid
    assert group not in [found.group_id for found in listed]
    with pytest.raises(KafkaException) as refused:
        ask(broker, lambda admin: admin.delete_consumer_groups([group]))
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    for consumer in members:
        consumer.close()
    offset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    ask(broker, lambda admin: admin.alter_consumer_group_offsets([offset]))
    committed = ask(broker, lambda admin: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(found.partition, found.offset) for found in committed.topic_partitions] == [(0, 7)]
    ask(broker, lambda admin: admin.delete_consumer_groups([group]))
    assert described(broker, group).state is ConsumerGroupState.DEAD


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_group_changes_its_protocol_one_member_after_another(
    broker: BrokerProcess, unique: Unique, strategy: str
) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    classic: dict[str, Any] = {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 300,
    }
    everybody: list[Member] = []
    members: list[Member] = []

    def join(**options: Any) -> None:
        members.append(Member(broker, group, topic, **options))
        everybody.append(members[-1])

    def settle_and_read(group_type: ConsumerGroupType, *counts: int) -> None:
        """Once all have their part, everything that is produced is read once."""
        wait_until(
            members,
            lambda: (
                shared(members, partitions(topic, 4), *counts)
                and described(broker, group).state is ConsumerGroupState.STABLE
            ),
        )
        assert described(broker, group).type is group_type
        before = sum(member.read.total() for member in everybody)
        produce(broker, topic, range(before, before + 40))
        wait_until(members, lambda: have_read(everybody, before + 40))
        for member in members:
            member.commit()

    join(**classic)
    join(**classic)
    settle_and_read(ConsumerGroupType.CLASSIC, 2, 2)
    join()
    settle_and_read(ConsumerGroupType.CONSUMER, 1, 1, 2)
    members.pop(0).close()
    join()
    settle_and_read(ConsumerGroupType.CONSUMER, 1, 1, 2)
    members.pop(0).close()
    settle_and_read(ConsumerGroupType.CONSUMER, 2, 2)
    # And back.
    join(**classic)
    settle_and_read(ConsumerGroupType.CONSUMER, 1, 1, 2)
    members.pop(0).close()
    members.pop(0).close()
    settle_and_read(ConsumerGroupType.CLASSIC, 4)
    members.pop().close()
    read = sum((member.read for member in everybody), Counter())
    assert read == Counter({str(value): 1 for value in range(240)})


def test_members_whose_assignments_hold_data_of_their_own_keep_their_protocol(
    broker: BrokerProcess, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    create(broker, topic)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    # In its second generation librdkafka puts the first one's into the assignments; a broker could not carry that on.
    old = [Member(broker, group, topic, **classic)]
    wait_until(old, lambda: old[0].assigned == partitions(topic, 4))
    old.append(Member(broker, group, topic, **classic))
    wait_until(old, lambda: shared(old, partitions(topic, 4), 2, 2))
    new = Member(broker, group, topic)
    wait_until([*old, new], lambda: bool(new.refusals))
    assert [error.code() for error in new.refusals] == [KafkaError._FATAL]
    assert "The group id does not exist" in new.refusals[0].str()
    assert shared(old, partitions(topic, 4), 2, 2)
    assert described(broker, group).type is ConsumerGroupType.CLASSIC
    for member in (new, *old):
        member.close()


@pytest.mark.fencepost(settings=SETTINGS)
def test_a_group_has_a_session_timeout_of_its_own(fencepost: Broker) -> None:
    broker, topic, group = fencepost, "orders", "group"
    create(broker, topic)
    resource = ConfigResource(ResourceType.GROUP, group)
    set_session_timeout(broker, group, 1_500)
    with pytest.raises(KafkaException) as refused:
        set_session_timeout(broker, group, 500)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    broker.crash()
    broker.restart()
    entries = ask(broker, lambda admin: admin.describe_configs([resource]))
    assert entries["consumer.session.timeout.ms"].value == "1500"
    assert entries["consumer.heartbeat.interval.ms"].value == "300"
    command = [sys.executable, "-c", FROZEN, broker.bootstrap_servers, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() != b"0 1 2 3\n":
                pass
            process.send_signal(signal.SIGSTOP)
            broker.advance(seconds=2.5)  # a session of the broker's default would go on
            assert not described(broker, group).members
        finally:
            process.kill()
