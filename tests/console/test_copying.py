"""Copies of records, against a broker: all of them once, in their order, and nothing else, whatever happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError
from fencepost.client.partitioner import partition_of_key
from fencepost.client.session import ClientOptions
from fencepost.console import copying
from fencepost.console.copying import Copying, Plan, Progress, StoppedError
from fencepost.console.reading import scan as scanning
from fencepost.console.reading.scan import Budget, Found
from fencepost.console.web.record_queries import begin, query_of
from tests.support.broker_process import BrokerProcess
from tests.support.stable_offsets import until_stable

pytestmark = pytest.mark.integration

TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@dataclass
class Topics:
    """A source with records and a target, of a test."""

    broker: BrokerProcess
    source: str
    target: str

    def create(self, name: str, partitions: int = 3) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)

    def delete(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.delete_topics([name])[name].result(60)

    def write(self, count: int, *, codec: str = "none", linger_ms: int = 5) -> None:
        """Each tenth record in an aborted transaction."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "compression.type": codec, "linger.ms": linger_ms}
        kept = Producer({**settings, "batch.num.messages": 20})
        aborted = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"{self.source}-aborts"})
        aborted.init_transactions(60)
        aborted.begin_transaction()
        for number in range(count):
            producer = aborted if number % 10 == 9 else kept
            headers = [("n", str(number).encode()), ("n", None)]
            value = None if number % 7 == 6 else f"value {number}"
            key = None if number % 5 == 4 else f"k{number}"
            producer.produce(self.source, value, key, partition=number % 3, headers=headers, timestamp=TIME_MS + number)
        assert kept.flush(60) == 0
        aborted.flush(60)
        aborted.abort_transaction(60)
        until_stable({"bootstrap.servers": self.broker.bootstrap}, self.source, 3)

    def read(self, name: str, isolation: str = "read_committed") -> list[Any]:
        """All messages, partition after partition, once no transaction is being ended."""
        reader = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": f"{name}-reader",
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found = []
        partitions = sorted(reader.list_topics(name, 60).topics[name].partitions)
        until_stable({"bootstrap.servers": self.broker.bootstrap}, name, len(partitions))
        for index in partitions:
            reader.assign([TopicPartition(name, index, 0)])
            while (message := reader.poll(60)) is not None and message.error() is None:
                found.append(message)
            assert message is not None
            assert message.error().code() == KafkaError._PARTITION_EOF
        reader.close()
        return found


@pytest.fixture
def topics(broker: BrokerProcess, request: pytest.FixtureRequest) -> Topics:
    name = request.node.name.replace("[", "-").replace("]", "")[-80:]
    found = Topics(broker, f"{name}-source", f"{name}-target")
    found.create(found.source)
    found.create(found.target)
    return found


def copy(
    topics: Topics,
    *,
    by_key: bool = False,
    keeps_time: bool = True,
    transactional_id: str | None = "copy",
    stands: str = "committed",
    stop: Callable[[], str | None] = lambda: None,
    at_chunk: Callable[[], None] = lambda: None,
    change: Callable[[Plan], Plan] = lambda plan: plan,
) -> Progress:
    """Copy all that is there now. at_chunk: called as soon as records are chosen."""

    async def run() -> Progress:
        host, _, port = topics.broker.bootstrap.rpartition(":")
        cluster = Cluster([(host, int(port))], ClientOptions())
        try:
            query = query_of({"stands": stands, "order": "oldest"})
            reading = await begin(cluster, topics.source, query, Budget(1, 1, 1))
            view = await cluster.view([topics.target])
            target = view.topics[topics.target]
            plan = Plan(
                topics.source,
                reading.topic.topic_id,
                topics.target,
                target.topic_id,
                len(target.partitions),
                reading.begins,
                reading.ends,
                by_key,
                keeps_time,
                transactional_id,
            )

            async def choose(found: Sequence[Found]) -> Sequence[Found]:
                await asyncio.to_thread(at_chunk)
                return [one for one in found if query.takes(one)]

            work = Copying(cluster, change(plan), choose, stop)
            progress = work.progress
            await work.run()
            return progress
        finally:
            cluster.close()

    return asyncio.run(run())


def contents(messages: list[Any]) -> list[Any]:
    return [(one.partition(), one.key(), one.value(), one.headers(), one.timestamp()[1]) for one in messages]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("transactional_id", ["copy", None])
def test_committed_records_are_copied_once_as_they_are(
    topics: Topics, transactional_id: str | None, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 70)
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 20)
    topics.write(600, codec=codec)
    progress = copy(topics, transactional_id=transactional_id)
    assert contents(topics.read(topics.target)) == contents(topics.read(topics.source))
    assert progress.written_records == 540
    assert progress.chunks >= 6
    assert progress.done_offsets >= 540
    assert progress.read_bytes > 0


def test_keys_decide_the_partition_and_times_are_of_the_copy_if_asked(topics: Topics) -> None:
    topics.write(200)
    copy(topics, by_key=True, keeps_time=False)
    found = topics.read(topics.target)
    assert len(found) == 180
    assert all(one.partition() == partition_of_key(one.key(), 3) for one in found if one.key() is not None)
    assert len({one.partition() for one in found if one.key() is None}) == 3
    assert all(one.timestamp()[1] > TIME_MS + 1_000_000 for one in found)


def test_aborted_records_are_copied_only_if_asked(topics: Topics) -> None:
    topics.write(100)
    copy(topics, stands="aborted")
    assert {one.value() for one in topics.read(topics.target)} == {
        None if number % 7 == 6 else f"value {number}".encode() for number in range(9, 100, 10)
    }


def test_a_copy_into_its_own_topic_ends(topics: Topics) -> None:
    topics.write(90)
    copy(replace(topics, target=topics.source))
    assert len(topics.read(topics.source)) == 2 * 81


def test_a_copy_of_a_copy_and_two_at_once_have_each_record_as_often_as_they_say(topics: Topics) -> None:
    topics.write(300)
    both = [
        threading.Thread(target=copy, args=(topics,), kwargs={"transactional_id": f"copy-{number}"})
        for number in (1, 2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    found = topics.read(topics.target)
    assert len(found) == 540
    third = f"{topics.target}-again"
    topics.create(third)
    copy(Topics(topics.broker, topics.target, third))
    assert contents(topics.read(third)) == contents(found)


def test_a_copy_that_is_stopped_leaves_whole_chunks_and_says_where(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 50)
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 10)
    topics.write(600)
    seen = 0
    kept: list[Progress] = []

    def count() -> None:
        nonlocal seen
        seen += 1

    started = Copying.run

    async def run(self: Copying) -> None:
        kept.append(self.progress)
        await started(self)

    monkeypatch.setattr(Copying, "run", run)
    with pytest.raises(StoppedError, match="enough"):
        copy(topics, stop=lambda: "enough" if seen > 15 else None, at_chunk=count)
    written = topics.read(topics.target)
    [progress] = kept
    assert len(written) == progress.written_records
    assert len(written) % 50 == 0
    assert 0 < len(written) < 540
    copy(topics, change=lambda plan: replace(plan, begins=progress.next_offsets))
    assert contents(topics.read(topics.target)) == contents(topics.read(topics.source))


def test_records_that_retention_takes_meanwhile_are_counted_and_passed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 50)
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 500)
    topics.write(600, linger_ms=0)
    seen = 0

    def delete() -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            admin = AdminClient({"bootstrap.servers": topics.broker.bootstrap})
            places = [TopicPartition(topics.source, index, 150) for index in range(3)]
            for future in admin.delete_records(places).values():
                future.result(60)

    progress = copy(topics, at_chunk=delete)
    assert progress.deleted > 0
    found = topics.read(topics.target)
    assert len(found) == progress.written_records
    copied = contents(found)
    assert [one for one in contents(topics.read(topics.source)) if one not in copied] == []


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_topic_that_is_made_again_ends_the_copy(topics: Topics, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 50)
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 10)
    topics.write(300)
    name = topics.source if which == "source" else topics.target
    seen = 0

    def make_again() -> None:
        nonlocal seen
        seen += 1
        if seen == 8:
            topics.delete(name)
            topics.create(name)

    with pytest.raises((StoppedError, ClusterError), match=r"made again|not there|cannot be read"):
        copy(topics, at_chunk=make_again)
    if which == "target":
        assert topics.read(topics.target, "read_uncommitted") == []


def test_a_target_that_was_made_again_before_it_begins_gets_nothing(topics: Topics) -> None:
    topics.write(30)
    with pytest.raises(StoppedError, match="made again"):
        copy(topics, change=lambda plan: replace(plan, target_id=bytes(15) + b"\1"))
    assert topics.read(topics.target, "read_uncommitted") == []


def test_a_broker_that_restarts_does_not_lose_or_repeat_a_record(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 100)
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 20)
    with BrokerProcess(tmp_path_factory.mktemp("restarting") / "data") as broker:
        topics = Topics(broker, "from", "to")
        topics.create("from")
        topics.create("to")
        topics.write(600)
        seen = 0

        def restart() -> None:
            nonlocal seen
            seen += 1
            if seen in (8, 17):
                broker.kill() if seen == 8 else broker.terminate()
                broker.start()

        progress = copy(topics, at_chunk=restart)
        assert progress.written_records == 540
        assert contents(topics.read("to")) == contents(topics.read("from"))
