"""Topics: metadata and logs in step, whatever is asked for and whenever the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.topics import DEFAULT_PARTITION_COUNT, Topics
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch


class Hosted:
    """Topics over a directory; `restart` is a new process, with a clean stop before it or without."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = Settings(
            **{"transaction_state_log_num_partitions": 4, "offsets_topic_num_partitions": 4} | settings
        )
        self.store = InMemoryMetadataStore()

    async def start(self) -> Topics:
        self.disk = LocalDisk()
        self.logs = LogDirectory(str(self.directory), disk=self.disk, clock=SystemClock())
        self.topics = Topics(self.store, self.logs, self.settings)
        await self.topics.open()
        return self.topics

    async def stop(self) -> None:
        await self.topics.close()
        await self.logs.close()
        self.disk.close()

    async def restart(self) -> Topics:
        await self.stop()
        return await self.start()


@pytest.fixture
async def hosted(tmp_path: Path) -> Any:
    hosted = Hosted(tmp_path)
    await hosted.start()
    yield hosted
    await hosted.stop()


async def create(
    topics: Topics, name: str, count: int = 1, configs: Mapping[str, str | None] | None = None
) -> ErrorCode:
    error, message = await topics.create(name, count, configs or {})
    assert (message is None) == (error is ErrorCode.NONE), "a refusal says why"
    return error


async def test_a_topic_that_another_node_has_created_exists_before_its_logs_are_open(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_opening, may_open = asyncio.Event(), asyncio.Event()

    async def open_slowly(_topic: TopicMetadata) -> None:
        is_opening.set()
        await may_open.wait()

    monkeypatch.setattr(hosted.topics._hosted, "host", open_slowly)
    await hosted.store.create_topic(TopicMetadata("orders", bytes(15) + b"1", 1, MappingProxyType({})))
    hosted.topics._topics_changed()
    await is_opening.wait()
    assert hosted.topics.metadata.get("orders") is None
    assert hosted.topics.check_new("orders", {})[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    may_open.set()


async def test_a_created_topic_has_an_id_and_a_log_for_each_partition(hosted: Hosted) -> None:
    topics = hosted.topics
    assert await create(topics, "orders", 3, {"retention.ms": "1000"}) is ErrorCode.NONE
    topic = topics.metadata.get("orders")
    assert topic is not None
    assert topic.partition_count == 3
    assert len(topic.topic_id) == 16
    assert any(topic.topic_id)
    assert topics.metadata.get_by_id(topic.topic_id) is topic
    for partition in range(3):
        log = topics.log(TopicPartition("orders", partition))
        assert log is not None
        assert log.config.retention_ms == 1000
        assert log.topic_id == topic.topic_id
    assert topics.log(TopicPartition("orders", 3)) is None


async def test_topics_are_there_again_after_a_restart(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 2, {"cleanup.policy": "compact"})
    before = hosted.topics.metadata.get("orders")
    topics = await hosted.restart()
    assert topics.metadata.get("orders") == before
    log = topics.log(TopicPartition("orders", 1))
    assert log is not None
    assert log.config.is_compacted


async def test_the_default_number_of_partitions_is_the_brokers(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, num_partitions=5)
    topics = await hosted.start()
    await create(topics, "orders", DEFAULT_PARTITION_COUNT)
    topic = topics.metadata.get("orders")
    assert topic is not None
    assert topic.partition_count == 5
    await hosted.stop()


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "with blank", "sl/ash", "ümlaut", "line\n", "nul\0"])
async def test_a_name_that_cannot_be_is_refused(hosted: Hosted, name: str) -> None:
    assert await create(hosted.topics, name) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "__own"])
async def test_any_other_name_is_fine(hosted: Hosted, name: str) -> None:
    assert await create(hosted.topics, name) is ErrorCode.NONE


async def test_names_that_differ_in_dots_and_underscores_only_collide(hosted: Hosted) -> None:
    assert await create(hosted.topics, "a.b_c") is ErrorCode.NONE
    assert await create(hosted.topics, "a_b.c") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await create(hosted.topics, "a.b_c") is ErrorCode.TOPIC_ALREADY_EXISTS
    topics = await hosted.restart()
    assert await create(topics, "a_b.c") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await topics.delete("a.b_c") is ErrorCode.NONE
    assert await create(topics, "a_b.c") is ErrorCode.NONE


@pytest.mark.parametrize("count", [0, -2])
async def test_a_topic_without_partitions_is_refused(hosted: Hosted, count: int) -> None:
    assert await create(hosted.topics, "orders", count) is ErrorCode.INVALID_PARTITIONS


async def test_more_partitions_than_the_broker_may_host_are_refused(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, fencepost_max_partitions=5)
    topics = await hosted.start()
    assert await create(topics, "orders", 4) is ErrorCode.NONE
    assert await create(topics, "payments", 2) is ErrorCode.POLICY_VIOLATION
    assert (await topics.add_partitions("orders", 6))[0] is ErrorCode.POLICY_VIOLATION
    assert (await topics.add_partitions("orders", 5))[0] is ErrorCode.NONE
    await hosted.stop()


@pytest.mark.parametrize("configs", [{"retention": "1"}, {"retention.ms": "soon"}, {"retention.ms": None}])
async def test_configs_that_cannot_be_are_refused(hosted: Hosted, configs: dict[str, str | None]) -> None:
    assert await create(hosted.topics, "orders", 1, configs) is ErrorCode.INVALID_CONFIG
    assert hosted.topics.metadata.get("orders") is None


async def test_checking_creates_nothing(hosted: Hosted) -> None:
    assert hosted.topics.check_create("orders", 1, {}) == (ErrorCode.NONE, None)
    assert hosted.topics.metadata.get("orders") is None


async def test_of_two_creations_at_once_one_wins(hosted: Hosted) -> None:
    outcomes = await asyncio.gather(*(hosted.topics.create("orders", 1, {}) for _ in range(5)))
    assert sorted(error.name for error, _ in outcomes) == ["NONE", *["TOPIC_ALREADY_EXISTS"] * 4]


async def test_a_deleted_topic_is_gone_and_its_name_free(hosted: Hosted) -> None:
    topics = hosted.topics
    await create(topics, "orders", 2)
    first = topics.metadata.get("orders")
    assert first is not None
    assert await topics.delete("orders") is ErrorCode.NONE
    assert topics.metadata.get("orders") is None
    assert topics.metadata.get_by_id(first.topic_id) is None
    assert topics.log(TopicPartition("orders", 0)) is None
    assert await topics.delete("orders") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await create(topics, "orders", 1)
    second = topics.metadata.get("orders")
    assert second is not None
    assert second.topic_id != first.topic_id


async def test_deleting_may_be_switched_off(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, delete_topic_enable=False)
    topics = await hosted.start()
    await create(topics, "orders")
    assert await topics.delete("orders") is ErrorCode.TOPIC_DELETION_DISABLED
    await hosted.stop()


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 2)
    (topic,) = hosted.topics.metadata.all()
    await hosted.store.delete_topic("orders", topic.topic_id)
    topics = await hosted.restart()
    assert topics.metadata.get("orders") is None
    assert await create(topics, "orders", 2) is ErrorCode.NONE
    await hosted.restart()
    assert await hosted.store.load_deletions() == []
    assert hosted.topics.log(TopicPartition("orders", 1)) is not None


async def test_a_deletion_whose_renames_were_lost_with_the_power_is_done_again(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 1)
    await hosted.topics.delete("orders")
    (renamed,) = hosted.directory.glob("orders-0.*-delete")
    await hosted.stop()
    renamed.rename(hosted.directory / "orders-0")
    topics = await hosted.start()
    assert await create(topics, "orders", 1) is ErrorCode.NONE


async def test_a_creation_that_the_disk_refuses_can_be_tried_again(hosted: Hosted) -> None:
    in_the_way = hosted.directory / "orders-1"
    in_the_way.mkdir()
    with pytest.raises(StorageError):
        await hosted.topics.create("orders", 2, {})
    assert hosted.topics.metadata.get("orders") is None
    assert hosted.topics.log(TopicPartition("orders", 0)) is None
    in_the_way.rmdir()
    topics = await hosted.restart()
    assert await create(topics, "orders", 2) is ErrorCode.NONE


async def test_a_creation_that_a_crash_cut_short_is_finished_at_the_next_start(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 2)
    topic = hosted.topics.metadata.get("orders")
    assert topic is not None
    hosted.logs.delete(TopicPartition("orders", 1))
    topics = await hosted.restart()
    log = topics.log(TopicPartition("orders", 1))
    assert log is not None
    assert log.topic_id == topic.topic_id


async def test_a_directory_of_an_unknown_past_is_left_alone_and_never_taken_over(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 1)
    hosted.store = InMemoryMetadataStore()
    topics = await hosted.restart()
    assert topics.metadata.get("orders") is None
    assert topics.log(TopicPartition("orders", 0)) is None
    error, message = await topics.create("orders", 1, {})
    assert error is ErrorCode.KAFKA_STORAGE_ERROR
    assert message is not None
    assert "orders-0" in message
    assert (hosted.directory / "orders-0").is_dir()


async def test_a_partition_that_does_not_know_its_topic_any_more_is_given_back_to_it(hosted: Hosted) -> None:
    await create(hosted.topics, "orders", 1)
    topic = hosted.topics.metadata.get("orders")
    assert topic is not None
    await hosted.stop()
    (hosted.directory / "orders-0" / "partition.metadata").write_bytes(b"\0\xff")
    (hosted.directory / "orders-0" / f"{0:020}.log").write_bytes(
        build_batch([Record(0, 1_700_000_000_000, None, b"kept")])
    )
    (hosted.directory / ".kafka_cleanshutdown").unlink()
    topics = await hosted.start()
    log = topics.log(TopicPartition("orders", 0))
    assert log is not None
    assert (log.topic_id, log.log_end_offset) == (topic.topic_id, 1)
    log = (await hosted.restart()).log(TopicPartition("orders", 0))
    assert log is not None
    assert log.topic_id == topic.topic_id


async def test_a_creation_that_failed_half_way_can_be_tried_again_at_once(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log = hosted.logs.create

    def fail_at_the_second(
        topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, *, leader_epoch: int
    ) -> PartitionLog:
        if topic_partition.partition == 1:
            raise StorageError("full")
        return make_log(topic_partition, topic_id, config, leader_epoch=leader_epoch)

    with monkeypatch.context() as patch:
        patch.setattr(hosted.logs, "create", fail_at_the_second)
        with pytest.raises(StorageError, match="full"):
            await hosted.topics.create("orders", 2, {})
    assert await create(hosted.topics, "orders", 2) is ErrorCode.NONE


async def test_partitions_can_be_added_but_not_taken_away(hosted: Hosted) -> None:
    topics = hosted.topics
    await create(topics, "orders", 2)
    assert await topics.add_partitions("orders", 4) == (ErrorCode.NONE, None)
    assert topics.log(TopicPartition("orders", 3)) is not None
    assert (await topics.add_partitions("orders", 4))[0] is ErrorCode.INVALID_PARTITIONS
    assert (await topics.add_partitions("orders", 1))[0] is ErrorCode.INVALID_PARTITIONS
    assert (await topics.add_partitions("nothing", 4))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = await hosted.restart()
    assert topics.log(TopicPartition("orders", 3)) is not None


async def test_altered_configs_reach_the_logs_and_stay(hosted: Hosted) -> None:
    topics = hosted.topics
    await create(topics, "orders", 1, {"retention.ms": "1000"})
    assert await topics.alter_configs("orders", {"segment.bytes": "2000000"}) == (ErrorCode.NONE, None)
    assert (await topics.alter_configs("orders", {"segment.bytes": "x"}))[0] is ErrorCode.INVALID_CONFIG
    assert (await topics.alter_configs("nothing", {}))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for candidate in (topics, await hosted.restart()):
        log = candidate.log(TopicPartition("orders", 0))
        assert log is not None
        assert log.config.segment_bytes == 2_000_000
        assert log.config.retention_ms == 604_800_000


async def test_a_stored_config_that_cannot_be_read_takes_no_other_one_with_it(hosted: Hosted) -> None:
    compact = {"cleanup.policy": "compact"}
    await create(hosted.topics, "orders", 1, compact)
    orders = hosted.topics.metadata.get("orders")
    assert orders is not None
    configs = {"cleanup.policy": "compact", "segment.bytes": "500"}
    await hosted.store.set_topic_configs("orders", configs, topic_id=orders.topic_id, before=compact)
    topics = await hosted.restart()
    log = topics.log(TopicPartition("orders", 0))
    assert log is not None
    assert log.config.is_compacted
    assert log.config.segment_bytes == 2**30


async def test_internal_topics_come_with_their_configs_once(hosted: Hosted) -> None:
    topics = hosted.topics
    created = await asyncio.gather(*(topics.ensure_internal(CONSUMER_OFFSETS_TOPIC) for _ in range(5)))
    assert len({topic.topic_id for topic in created}) == 1
    assert created[0].partition_count == 4
    assert created[0].is_internal
    transactions = await topics.ensure_internal(TRANSACTION_STATE_TOPIC)
    assert transactions.configs["cleanup.policy"] == "compact"
    assert transactions.configs["compression.type"] == "uncompressed"
    assert transactions.configs["segment.bytes"] == "4194304"
    with pytest.raises(ValueError, match="not an internal topic"):
        await topics.ensure_internal("orders")


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_internal_topics_are_not_for_clients_to_change(hosted: Hosted, name: str) -> None:
    topics = hosted.topics
    await topics.ensure_internal(name)
    assert await topics.delete(name) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await topics.add_partitions(name, 10))[0] is ErrorCode.INVALID_PARTITIONS


async def test_hooks_see_the_topic_when_its_logs_are_there(hosted: Hosted) -> None:
    topics = hosted.topics
    seen: list[tuple[str, str, bool]] = []

    def watch(event: str) -> Any:
        return lambda topic: seen.append((event, topic.name, topics.log(TopicPartition(topic.name, 0)) is not None))

    topics.on_created.append(watch("created"))
    topics.on_deleted.append(watch("deleted"))
    await create(topics, "orders")
    await topics.delete("orders")
    assert seen == [("created", "orders", True), ("deleted", "orders", True)]


async def test_two_brokers_cannot_share_a_directory(hosted: Hosted) -> None:
    with pytest.raises(StorageError, match="in use by another broker"):
        await Hosted(hosted.directory).start()


async def test_a_growth_that_fails_half_way_leaves_nothing_served_and_can_be_tried_again(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = hosted.topics
    await create(topics, "orders", 1)
    make = LogDirectory.create

    def fail_at_last(logs: LogDirectory, name: TopicPartition, *args: Any, **options: Any) -> PartitionLog:
        if name.partition == 3:
            raise StorageError("the disk is full")
        return make(logs, name, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(LogDirectory, "create", fail_at_last)
        with pytest.raises(StorageError, match="full"):
            await topics.add_partitions("orders", 4)
    assert [name for name in range(4) if topics.log(TopicPartition("orders", name)) is not None] == [0]
    assert [topic.partition_count for topic in await hosted.store.load_topics()] == [1]
    assert await topics.add_partitions("orders", 4) == (ErrorCode.NONE, None)
    topics = await hosted.restart()
    assert all(topics.log(TopicPartition("orders", number)) is not None for number in range(4))
