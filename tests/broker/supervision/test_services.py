"""What a node does in the background meets what nobody foresaw: it is done again, or its partition says so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config.password import Password
from fencepost.broker.coordination import internal_topic
from fencepost.broker.group import service as group_service
from fencepost.broker.group.streams import service as streams_service
from fencepost.broker.group.streams.topology import StreamsInternalTopic
from fencepost.broker.hosting import background_opening, topics
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.hosting.store_poll import STORE_POLL
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.supervision import Place
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.broker.log.directory import log_opening
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.directory.log_opening import LogOpening
from fencepost.broker.node import background
from fencepost.broker.process import serve
from fencepost.broker.quotas import connections as connection_quotas
from fencepost.broker.quotas.addresses import address_of
from fencepost.broker.security.delegation_token_store import DelegationTokens
from fencepost.broker.share import coordinator, dead_letter_copies, share_partitions, waiting_copies
from fencepost.broker.share import service as share_service
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs
from fencepost.broker.share.dead_letters import is_under_way
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.share.share_partitions import ServedSharePartitions
from fencepost.broker.storage import sync_threads
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.sync_threads import SyncJob, SyncPart, SyncThreads
from fencepost.protocol.errors import ErrorCode
from tests.broker.hosting.test_background_opening import FIRST, SECOND, THIRD
from tests.broker.hosting.test_background_opening import Broker as LateBroker
from tests.broker.quotas.test_connections import World as Quotas
from tests.broker.supervision.planting import Unforeseen, logged, plants, raising, unforeseen, until
from tests.broker.test_node import running
from tests.support.share_broker import ShareBroker, lent, running_share_broker

OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    monkeypatch.setattr(background_opening, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
async def shares(tmp_path: Path) -> AsyncIterator[ShareBroker]:
    async with running_share_broker(tmp_path) as broker:
        await broker.create("orders")
        yield broker


# The node


@plants(background.SWEEP_TIMER)
@unforeseen
async def test_a_sweep_that_fails_is_not_the_last(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LONGEST_SWEEP_INTERVAL_S", 0.005)
    swept: list[int] = []
    monkeypatch.setattr(LogDirectory, "sweep", raising(error, times=1, then=lambda *_, **__: swept.append(1)))
    with logged(background.SWEEP_TIMER):
        async with running(tmp_path):
            await until(lambda: len(swept) > 2)


@plants(background.TOKEN_SWEEP)
@unforeseen
async def test_a_sweep_of_delegation_tokens_that_fails_is_not_the_last(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []

    async def sweep(_: DelegationTokens) -> None:
        swept.append(1)
        if len(swept) == 1:
            raise error
        if len(swept) == 2:
            raise StorageError("the disk is full")

    monkeypatch.setattr(DelegationTokens, "remove_expired", sweep)
    chosen = {"delegation_token_secret_key": Password("key"), "delegation_token_expiry_check_interval_ms": 5}
    with logged(background.TOKEN_SWEEP):
        async with running(tmp_path, **chosen):
            await until(lambda: len(swept) > 2)


async def test_a_node_that_has_failed_serves_no_client(tmp_path: Path) -> None:
    failed: list[str | None] = []
    async with running(tmp_path) as one:
        one.on_failed = lambda: failed.append(one.failure)
        reader, writer = await asyncio.open_connection(one.address.host, one.address.port)
        await until(lambda: one.connection_count)
        place = supervision.Place("test of a node that cannot go on", supervision.Policy.STOP_BROKER)
        try:
            place.attempt(raising(Unforeseen("planted")))
        finally:
            del supervision.PLACES[place.name]
        async with asyncio.timeout(60):
            with pytest.raises(OSError):  # noqa: PT011, PT012  # reset, or refused
                if await reader.read(1) == b"":
                    raise OSError("closed")
        with pytest.raises(OSError):  # noqa: PT011  # whatever the system says
            await asyncio.open_connection(one.address.host, one.address.port)
        writer.close()
    assert failed == ["test of a node that cannot go on failed unexpectedly: Unforeseen: planted"]


PROGRAM = """
import asyncio, os, signal
from fencepost.broker.process import serve
from fencepost.broker.process.serve_settings import load
from fencepost.broker.node import Node
from fencepost.broker.kernel.supervision import Place, Policy

class Unforeseen(Exception): ...

def raise_it():
    raise Unforeseen("planted")

async def fail(node):
    raise_it()

async def stop(node):
    Place("test", Policy.STOP_BROKER).attempt(raise_it)

async def fail_and_end(node):
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
    raise_it()

{planted}
serve.serve(load(("127.0.0.1:0",), {directory!r}, None, (), None, None))
"""


def serve_until_the_end(directory: Path, planted: str) -> tuple[int, list[str]]:
    """Exit code and standard error of a broker in whose way something is."""
    program = PROGRAM.format(planted=planted, directory=str(directory))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.parametrize(
    ("planted", "line"),
    [
        ("Node.ensure_loaded = stop", "fencepost: stopped: test failed unexpectedly: Unforeseen: planted"),
        ("Node.start = fail", "fencepost: stopped by something unexpected: Unforeseen: planted"),
    ],
)
def test_a_broker_that_cannot_go_on_ends_with_a_line_and_an_exit_code(tmp_path: Path, planted: str, line: str) -> None:
    exit_code, lines = serve_until_the_end(tmp_path, planted)
    assert exit_code == serve.EXIT_FAILED
    assert lines[-1] == line


@plants(serve.HEAP_FREEZE)
def test_a_broker_serves_on_where_only_its_memory_could_not_be_arranged(tmp_path: Path) -> None:
    exit_code, lines = serve_until_the_end(tmp_path, "Node.ensure_loaded = fail_and_end")
    assert exit_code == 0
    assert sum(f"work={serve.HEAP_FREEZE.name!r}" in line for line in lines) == 1


# Logs


@plants(log_opening.OPENING)
@unforeseen
@pytest.mark.parametrize("how", ["at the start", "asked for", "in the background"])
async def test_a_log_that_cannot_be_opened_is_not_served_and_all_others_are(
    tmp_path: Path, error: BaseException, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000 if how == "at the start" else 0).with_orders()
    load = LogOpening._load

    def fail(self: LogOpening, name: TopicPartition, *arguments: Any, **named: Any) -> Any:
        if name == SECOND:
            raise type(error)(*error.args)
        return load(self, name, *arguments, **named)

    with monkeypatch.context() as patch, logged(log_opening.OPENING, SECOND):
        patch.setattr(LogOpening, "_load", fail)
        served = await broker.restart()
        if how == "asked for":
            assert served.log(SECOND) is None
        await served.ensure_opened()
    assert [served.log(name) is not None for name in (FIRST, THIRD)] == [True, True]
    assert served.is_unopened(SECOND)
    # The failure was temporary: the next request opens it.
    await until(lambda: served.log(SECOND) is not None)
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


@plants(log_opening.OPENING_SYNC)
@unforeseen
async def test_logs_whose_recovery_cannot_be_synced_say_that_they_are_offline(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path).with_orders()
    sync = type(broker.disk).sync

    def fail(disk: Any, files: Any, directories: Any = ()) -> Any:
        return raising(error)() if files else sync(disk, files, directories)

    with monkeypatch.context() as patch, logged(log_opening.OPENING_SYNC, times=3):
        patch.setattr(type(broker.disk), "sync", fail)
        served = await broker.restart(crash=True)
        await served.ensure_opened()
        await until(lambda: served.log(THIRD) is not None)
    for name in (FIRST, SECOND, THIRD):
        log = served.log(name)
        assert log is not None
        assert log.is_offline
    await broker.stop()


@plants(background_opening.BACKGROUND_OPENING)
@unforeseen
async def test_the_opening_of_logs_goes_on_after_a_failure(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path).with_orders()
    monkeypatch.setattr(LogDirectory, "open_next", raising(error, times=2, then=LogDirectory.open_next))
    with logged(background_opening.BACKGROUND_OPENING, times=2):
        await broker.restart()
        await until(lambda: not broker.logs.unopened)
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


@plants(sync_threads.SYNC_THREAD)
@unforeseen
async def test_a_sync_thread_outlives_what_it_does(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = SyncThreads()
    part = SyncPart((SyncJob(str(tmp_path), is_directory=True),))
    monkeypatch.setattr(sync_threads, "_error_of", raising(error, times=1, then=sync_threads._error_of))
    async with asyncio.timeout(60):
        with logged(sync_threads.SYNC_THREAD, str(tmp_path)), pytest.raises(StorageError, match="unexpectedly"):
            await threads.sync([part], [], lambda: None)
        await threads.sync([part], [], lambda: None)
    threads.close()


@plants(sync_threads.SYNC_END)
@unforeseen
async def test_waiters_of_a_sync_are_answered_although_its_end_fails(tmp_path: Path, error: BaseException) -> None:
    threads = SyncThreads()
    part = SyncPart((SyncJob(str(tmp_path), is_directory=True),))
    async with asyncio.timeout(60):
        with logged(sync_threads.SYNC_END), pytest.raises(StorageError, match="unexpectedly"):
            await threads.sync([part], [], raising(error))
    threads.close()


# Topics and quotas


@plants(topics.READMISSION)
@unforeseen
async def test_a_partition_that_could_not_be_served_is_led_after_a_failure(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "FIRST_READMISSION_PAUSE_S", 0.001)
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    broker.topics._hosted.release(SECOND)
    refused = raising(StorageError("the disk is full"), times=1, then=broker.topics._refresh)
    monkeypatch.setattr(broker.topics, "_refresh", refused)
    with logged(topics.READMISSION):
        broker.topics._placement_changed(SECOND)
        begin = broker.topics._begin_admission
        monkeypatch.setattr(broker.topics, "_begin_admission", raising(error, times=1, then=begin))
        await until(lambda: broker.topics.log(SECOND) is not None)
    assert not broker.topics._arriving
    await broker.stop()


@plants(topics.CHANGE)
@unforeseen
async def test_a_topic_change_that_fails_is_refused_and_the_others_are_made(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    with monkeypatch.context() as patch, logged(topics.CHANGE):
        patch.setattr(broker.store, "create_topic", raising(error))
        with pytest.raises(type(error)):
            await broker.topics.create("more", 1, {})
    async with asyncio.timeout(60):
        assert await broker.topics.create("others", 1, {}) == (ErrorCode.NONE, None)
    await broker.stop()


@plants(topics.REFRESH)
@unforeseen
async def test_changes_of_other_nodes_are_applied_after_a_failure(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    refreshed: list[int] = []

    async def refresh() -> None:
        refreshed.append(1)

    monkeypatch.setattr(broker.topics, "_refresh", raising(error, times=2, then=refresh))
    with logged(topics.REFRESH, times=2):
        broker.topics._topics_changed()
        await until(lambda: refreshed)
    await broker.stop()


@plants(STORE_POLL)
@unforeseen
async def test_what_is_known_is_described_where_looking_for_more_fails(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    monkeypatch.setattr(broker.topics.placement, "other_nodes", lambda: [NodeAddress(2, "localhost", 9093)])
    monkeypatch.setattr(broker.topics._store, "follow", raising(error, times=1, then=broker.topics._store.follow))
    with logged(STORE_POLL):
        await broker.topics.catch_up()
    await broker.topics.catch_up()
    await broker.stop()


@plants(topics.ADMISSION)
@unforeseen
async def test_a_partition_that_comes_from_another_node_is_led_after_a_failure(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    broker.topics._hosted.release(SECOND)
    monkeypatch.setattr(broker.topics, "_refresh", raising(error, times=2, then=broker.topics._refresh))
    with logged(topics.ADMISSION, times=2):
        broker.topics._placement_changed(SECOND)
        await until(lambda: broker.topics.log(SECOND) is not None)
    assert not broker.topics._arriving
    await broker.stop()


@plants(topics.CHANGE)
@unforeseen
async def test_topics_are_changed_after_a_change_that_failed(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await LateBroker(tmp_path, opening_logs_ms=60_000).with_orders()
    monkeypatch.setattr(broker.logs, "remove_leftovers", raising(error, times=1, then=broker.logs.remove_leftovers))
    with logged(topics.CHANGE), pytest.raises(type(error)):
        await broker.topics.create("one", 1, {})
    assert await broker.topics.create("one", 1, {}) == (ErrorCode.NONE, None)
    await broker.stop()


@plants(connection_quotas.HOST_LOOK_UP)
@unforeseen
async def test_limits_of_hosts_count_after_a_look_up_that_failed(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Quotas()
    monkeypatch.setattr(connection_quotas, "address_of", raising(error, times=2, then=address_of))
    with logged(connection_quotas.HOST_LOOK_UP, times=2):
        await world.take_over(max_connections_per_ip_overrides="127.0.0.1:1")
        await until(lambda: world.quotas._overrides == {"127.0.0.1": 1})


# Groups


@plants(group_service.CLEANUP)
@unforeseen
async def test_offsets_of_a_deleted_topic_go_after_a_failure(shares: ShareBroker, error: BaseException) -> None:
    services = shares.node.services
    await services.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
    await services.groups.ensure_loaded()
    groups: Any = services.groups
    dropped: list[int] = []

    async def drop(index: int) -> None:
        dropped.append(index)

    groups._drop_offsets_of_deleted_topics = raising(error, times=2, then=drop)
    with logged(group_service.CLEANUP, OFFSETS):
        await services.topics.delete("orders")
        await until(lambda: dropped == [0])


@plants(group_service.ABANDONED_REQUEST)
@unforeseen
async def test_an_abandoned_request_that_cannot_be_noted_is_logged(shares: ShareBroker, error: BaseException) -> None:
    groups: Any = shares.node.services.groups
    groups._decide = raising(error)
    with logged(group_service.ABANDONED_REQUEST):
        groups._spawn(groups._abandon("g", 1))
        await asyncio.sleep(0.01)
    assert not groups._tasks


@plants(internal_topic.AFTER_LOAD)
@unforeseen
async def test_work_after_the_loading_of_groups_is_retried_after_a_failure(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []

    async def drop(_: object, index: int) -> None:
        dropped.append(index)

    fails: Any = raising(error, times=2)

    async def fail_twice(service: object, index: int) -> None:
        fails()
        await drop(service, index)

    monkeypatch.setattr(group_service.GroupService, "_drop_offsets_of_deleted_topics", fail_twice)
    async with running_share_broker(tmp_path) as broker:
        with logged(internal_topic.AFTER_LOAD, OFFSETS):
            await broker.node.services.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
            await broker.node.services.groups.ensure_loaded()
            await until(lambda: dropped == [0])


@plants(streams_service.INTERNAL_TOPIC_CREATION)
@unforeseen
async def test_an_internal_topic_that_could_not_be_created_is_tried_again(
    shares: ShareBroker, error: BaseException
) -> None:
    streams: Any = shares.node.services.groups.streams
    wanted = {"t": StreamsInternalTopic("t", 1, -1, {})}
    streams._try_to_create = raising(error, times=1, then=streams._try_to_create)
    with logged(streams_service.INTERNAL_TOPIC_CREATION, "t"):
        streams._create("g", wanted)
        await streams.settled()
    streams._create("g", wanted)
    await streams.settled()
    assert shares.node.services.topics.metadata.get("t") is not None


# Share groups


@plants(share_service.INITIALIZATION)
@unforeseen
async def test_the_state_of_share_partitions_is_made_after_a_failure(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Any = shares.node.services.shares
    with monkeypatch.context() as patch, logged(share_service.INITIALIZATION):
        patch.setattr(service, "_initialize", raising(error))
        with pytest.raises(AssertionError):
            await shares.join("one", ["orders"])
    shares.clock.time_ms += 60_000
    assert await shares.join("two", ["orders"])


async def reading(shares: ShareBroker) -> int:
    await shares.configure("g", share_auto_offset_reset="earliest")
    epoch = await shares.join("one", ["orders"])
    assert lent(await shares.fetch("one", 0)) == []
    await shares.produce("orders", 3)
    return epoch


def led(shares: ShareBroker) -> ServedSharePartitions:
    found: ServedSharePartitions = shares.node.services.shares.share_partitions
    return found


def rounds(shares: ShareBroker, monkeypatch: pytest.MonkeyPatch, keys: list[SharePartitionKey]) -> Any:
    """The copies that wait: these, in rounds that follow each other quickly."""
    monkeypatch.setattr(waiting_copies, "ROUND_S", 0.01)
    copies = shares.node.services.shares.waiting_copies
    monkeypatch.setattr(copies._coordinator, "waiting", lambda: keys)
    return copies


@plants(waiting_copies.ROUND_TIMER)
@unforeseen
async def test_rounds_over_waiting_copies_go_on_after_one_that_failed(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = rounds(shares, monkeypatch, [])
    begun: list[bool] = []

    def none_waits() -> list[SharePartitionKey]:
        begun.append(True)
        return []

    monkeypatch.setattr(copies._coordinator, "waiting", raising(error, times=1, then=none_waits))
    with logged(waiting_copies.ROUND_TIMER):
        copies._round_later()
        await until(lambda: bool(begun))
    await until(lambda: copies._timer is None)


@plants(waiting_copies.ROUND, waiting_copies.CONTINUATION)
@unforeseen
@pytest.mark.parametrize("place", [waiting_copies.ROUND, waiting_copies.CONTINUATION], ids=["round", "continuation"])
async def test_a_waiting_copy_that_failed_is_tried_in_the_next_round(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    topic = shares.node.services.topics.metadata.get("orders")
    assert topic is not None
    key = SharePartitionKey("g", topic.topic_id, 0)
    keys = [key]
    copies = rounds(shares, monkeypatch, keys)
    done: list[SharePartitionKey] = []
    step = "_ask" if place is waiting_copies.ROUND else "_load"

    async def end(found: SharePartitionKey) -> None:
        done.append(found)
        keys.clear()
        copies._loading.discard(found)

    failing = raising(error, times=1)

    async def fail_once(found: SharePartitionKey) -> None:
        try:
            failing()
        except BaseException:
            copies._loading.discard(found)
            raise
        await end(found)

    monkeypatch.setattr(copies, step, fail_once)
    with logged(place, str(key)):
        copies._round_later()
        await until(lambda: done == [key])


@plants(share_partitions.SHARE_LOAD)
@unforeseen
async def test_a_share_partition_that_failed_to_load_is_loaded_for_the_next_request(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    (key,) = led(shares)._partitions
    led(shares).drop(key)
    with monkeypatch.context() as patch, logged(share_partitions.SHARE_LOAD, str(key)):
        patch.setattr(led(shares), "_first_offset", raising(error))
        patch.setattr(led(shares)._persister, "read", raising(error))
        with pytest.raises(type(error)):
            await shares.fetch("one", 1)
    assert lent(await shares.fetch("one", 2)) == [(0, 2, 1)]


@plants(share_partitions.SHARE_PARTITION_CHANGE)
@unforeseen
@pytest.mark.parametrize("step", ["acquire", "apply"])
async def test_a_share_partition_that_may_be_half_changed_is_loaded_again(
    shares: ShareBroker, error: BaseException, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    if step == "apply":
        assert lent(await shares.fetch("one", 1)) == [(0, 2, 1)]
    (before,) = led(shares)._partitions.values()
    with monkeypatch.context() as patch, logged(share_partitions.SHARE_PARTITION_CHANGE):
        patch.setattr(SharePartition, step, raising(error))
        if step == "apply":
            await shares.acknowledge("one", 2, (0, 0, [1]))
        else:
            assert lent(await shares.fetch("one", 1)) == []
    assert before.is_dropped
    again = lent(await shares.fetch("one", 3 if step == "apply" else 2))
    assert [(first, last) for first, last, _ in again] == [(1 if step == "apply" else 0, 2)]


@plants(share_partitions.LOCK_TIMER)
@unforeseen
async def test_locks_of_a_share_partition_end_after_a_failure(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    assert lent(await shares.fetch("one", 1)) == [(0, 2, 1)]
    (before,) = led(shares)._partitions.values()
    shares.clock.time_ms += 120_000
    with monkeypatch.context() as patch, logged(share_partitions.LOCK_TIMER):
        patch.setattr(SharePartition, "expire_locks", raising(error))
        before._schedule()
        await until(lambda: before.is_dropped)
    assert [(first, last) for first, last, _ in lent(await shares.fetch("one", 2))] == [(0, 2)]


@plants(dead_letter_copies.COPYING)
@unforeseen
async def test_dead_letters_are_copied_after_a_failure(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    await shares.node.services.topics.create("dlq.orders", 1, enabled)
    await shares.configure("g", errors_deadletterqueue_topic_name="dlq.orders")
    assert lent(await shares.fetch("one", 1)) == [(0, 2, 1)]
    (served,) = led(shares)._partitions.values()
    with monkeypatch.context() as patch, logged(dead_letter_copies.COPYING):
        patch.setattr(DeadLetterLogs, "append", raising(error))
        await shares.acknowledge("one", 2, (0, 2, [3]))
        await until(lambda: is_under_way(served.dead_letters))
        await served.copy_durable()
        await asyncio.sleep(0)  # the copying is called back by the same sync
    await until(lambda: not served.has_undeliverable)
    copies = shares.node.services.topics.log(TopicPartition("dlq.orders", 0))
    assert copies is not None
    assert copies.log_end_offset == 3


@plants(coordinator.SHARE_STATE_REMOVAL)
@unforeseen
async def test_the_share_state_of_a_deleted_topic_goes_after_a_failure(
    shares: ShareBroker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    store: Any = shares.node.services.shares.coordinator
    forgotten: list[bytes] = []

    async def forget(index: int, topic_id: bytes) -> None:
        forgotten.append(topic_id)

    monkeypatch.setattr(store, "_forget_topic", raising(error, times=2, then=forget))
    with logged(coordinator.SHARE_STATE_REMOVAL, "orders"):
        await shares.node.services.topics.delete("orders")
        await until(lambda: forgotten)


@plants(coordinator.PRUNING, coordinator.PRUNE_TIMER)
@unforeseen
@pytest.mark.parametrize("step", ["prune", "_prune_all", "_keep"])
async def test_share_state_is_pruned_after_a_failure(
    shares: ShareBroker, error: BaseException, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading(shares)
    store: Any = shares.node.services.shares.coordinator
    monkeypatch.setattr(coordinator, "PRUNE_INTERVAL_MS", 10)
    monkeypatch.setattr(store, step, raising(error, times=1, then=getattr(store, step)))
    pruned: list[int] = []
    prune = store.prune

    async def count(index: int) -> None:
        if step != "prune" or pruned:
            pruned.append(index)
        else:
            pruned.append(-1)
            await prune(index)

    monkeypatch.setattr(store, "prune", count)
    place = coordinator.PRUNING if step == "prune" else coordinator.PRUNE_TIMER
    with logged(place):
        coordinator.PRUNE_TIMER.callback(store._prune_now)()
        await until(lambda: len(pruned) > 2)
        store._prune_timer.cancel()
