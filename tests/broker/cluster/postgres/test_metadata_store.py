"""Metadata in PostgreSQL: what one node changes the others hear, and a lost answer changes nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fencepost.broker.cluster.postgres import session as session_module
from fencepost.broker.cluster.postgres.connections import UnavailableError, connect, parse_address
from fencepost.broker.cluster.postgres.metadata_store import FOLLOWING, PostgresMetadataStore
from fencepost.broker.kernel import eager, supervision
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.postgres import PostgresServer

ORDERS = TopicMetadata("orders", b"o" * 16, 3, {"retention.ms": "1000"})

Two = tuple[PostgresMetadataStore, PostgresMetadataStore]


@pytest.fixture
async def two(cluster_url: str) -> AsyncIterator[Two]:
    async with AsyncExitStack() as cleanup:
        stores = PostgresMetadataStore(parse_address(cluster_url)), PostgresMetadataStore(parse_address(cluster_url))
        for store in stores:
            await store.open()
            cleanup.push_async_callback(store.close)
        yield stores


class Heard:
    """What a store has reported, in order."""

    def __init__(self, store: PostgresMetadataStore) -> None:
        self.kinds: list[str] = []
        store.on_topics_changed.append(lambda: self.kinds.append("topics"))
        store.on_documents_changed.append(lambda: self.kinds.append("documents"))
        store.on_placement_changed.append(self._placement)

    async def _placement(self) -> None:
        self.kinds.append("placement")


async def execute(store: PostgresMetadataStore, statement: str, *parameters: object) -> Any:
    return await store.session.run(lambda connection: connection.fetch(statement, *parameters))


async def end_sessions(store: PostgresMetadataStore) -> None:
    """End all sessions of a store, as a restart of PostgreSQL does."""
    connection = await connect(store.address, application_name="test")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
        store.session_name("metadata"),
    )
    await connection.close()


async def test_what_one_node_changes_another_hears_placement_first(two: Two) -> None:
    one, other = two
    heard = Heard(other)
    await one.create_topic(ORDERS)
    await until(lambda: heard.kinds == ["placement", "topics"])
    heard.kinds.clear()
    await one.compare_and_set("rights", b"x", 0)
    await until(lambda: heard.kinds == ["documents"])
    assert await other.load_topics() == [ORDERS]


async def test_a_change_that_was_announced_while_the_connection_was_lost_is_heard(two: Two) -> None:
    one, other = two
    heard = Heard(other)
    await end_sessions(other)
    await one.compare_and_set("rights", b"x", 0)
    assert await other.load_topics() == [], "asks again on another connection"
    await until(lambda: heard.kinds == ["documents"])


async def make_deaf(store: PostgresMetadataStore) -> None:
    """Let a store hear no announcements."""

    async def unlisten(connection: Any) -> None:
        await connection.execute("UNLISTEN *")

    await store.session.run(unlisten)


async def test_a_node_that_looks_need_not_wait_for_an_announcement(two: Two) -> None:
    one, other = two
    heard = Heard(other)
    await make_deaf(other)
    await one.create_topic(ORDERS)
    await other.follow()
    assert heard.kinds == ["placement", "topics"]
    await other.follow()
    assert heard.kinds == ["placement", "topics"]


async def test_a_lost_announcement_is_made_good_by_the_counts(two: Two) -> None:
    one, other = two
    heard = Heard(other)
    await make_deaf(other)
    await one.compare_and_set("rights", b"x", 0)
    counts = {row["kind"]: row["count"] for row in await execute(one, "SELECT kind, count FROM changes")}
    assert heard.kinds == []
    other.seen_counts(counts)
    await until(lambda: heard.kinds == ["documents"])
    other.seen_counts(counts)
    assert not other._may_have_changed.is_set()


async def test_a_topic_has_a_row_for_each_partition_from_its_creation_to_its_deletion(two: Two) -> None:
    one, _ = two
    rows = "SELECT count(*) FROM partitions"
    await one.create_topic(ORDERS)
    assert (await execute(one, rows))[0][0] == 3
    await one.set_partition_count("orders", 5, topic_id=ORDERS.topic_id, before=3)
    assert (await execute(one, rows))[0][0] == 5
    await one.set_partition_count("orders", 3, topic_id=ORDERS.topic_id, before=5)
    assert (await execute(one, rows))[0][0] == 3
    await one.delete_topic("orders", ORDERS.topic_id)
    assert (await execute(one, rows))[0][0] == 0


async def test_of_two_topics_whose_names_collide_one_is_created(two: Two) -> None:
    topics = [TopicMetadata(name, name.encode() * 8, 1) for name in ("a.", "a_")]
    for _ in range(5):
        created = await asyncio.gather(*(store.create_topic(topic) for store, topic in zip(two, topics, strict=True)))
        assert sorted(created) == [False, True]
        (found,) = await two[0].load_topics()
        await two[1].delete_topic(found.name, found.topic_id)
        await two[1].finish_deletion(found.topic_id)


async def test_a_change_that_was_decided_on_what_another_node_has_changed_is_refused(two: Two) -> None:
    one, other = two
    await one.create_topic(ORDERS)
    assert await other.set_topic_configs(
        "orders", {"a": "1", "b": "2"}, topic_id=ORDERS.topic_id, before=ORDERS.configs
    )
    assert not await one.set_topic_configs("orders", {}, topic_id=ORDERS.topic_id, before=ORDERS.configs)
    assert await one.set_topic_configs("orders", {"c": "3"}, topic_id=ORDERS.topic_id, before={"b": "2", "a": "1"})
    assert await other.set_partition_count("orders", 9, topic_id=ORDERS.topic_id, before=3)
    assert not await one.set_partition_count("orders", 5, topic_id=ORDERS.topic_id, before=3)
    (found,) = await one.load_topics()
    assert (found.partition_count, found.configs) == (9, {"c": "3"})
    assert await other.delete_topic("orders", ORDERS.topic_id)
    again = TopicMetadata("orders", b"again" + b"\0" * 11, 1)
    assert await other.create_topic(again)
    assert not await one.delete_topic("orders", ORDERS.topic_id)
    assert await one.load_topics() == [again]
    assert (await execute(one, "SELECT count(*) FROM partitions"))[0][0] == 1


async def test_a_node_that_looks_knows_what_another_has_changed(two: Two) -> None:
    one, other = two
    heard = Heard(other)
    await one.create_topic(ORDERS)
    await other.follow()
    assert heard.kinds == ["placement", "topics"]


Patch = Callable[[bool], None]


@pytest.fixture
def lose_answer(two: Two, monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Makes the first node's next work fail as a lost connection does, before or after PostgreSQL has done it."""

    def patch(is_done: bool) -> None:
        store = two[0]
        run_once = type(store.session)._run_once
        attempts: list[object] = []

        async def once(work: Any) -> Any:
            attempts.append(work)
            if len(attempts) == 1:
                if is_done:
                    await run_once(store.session, work)
                raise UnavailableError("the connection was lost")
            return await run_once(store.session, work)

        monkeypatch.setattr(store.session, "_run_once", once)

    return patch


either = pytest.mark.parametrize("is_done", [True, False], ids=["done, answer lost", "not done"])


@either
async def test_a_creation_or_deletion_with_a_lost_answer_is_made_once_and_reported_as_made(
    two: Two, lose_answer: Patch, is_done: bool
) -> None:
    one, other = two
    lose_answer(is_done)
    assert await one.create_topic(ORDERS)
    assert await other.load_topics() == [ORDERS]
    lose_answer(is_done)
    assert await one.set_partition_count("orders", 5, topic_id=ORDERS.topic_id, before=3)
    lose_answer(is_done)
    assert await one.delete_topic("orders", ORDERS.topic_id)
    assert [topic.name for topic in await other.load_deletions()] == ["orders"]


@either
async def test_a_name_that_another_node_took_is_refused_though_the_answer_was_lost(
    two: Two, lose_answer: Patch, is_done: bool
) -> None:
    one, other = two
    assert await other.create_topic(ORDERS)
    lose_answer(is_done)
    assert not await one.create_topic(TopicMetadata("orders", b"x" * 16, 1))


@either
async def test_a_document_with_a_lost_answer_is_written_once(two: Two, lose_answer: Patch, is_done: bool) -> None:
    one, other = two
    lose_answer(is_done)
    assert await one.compare_and_set("block", b"1000", 0)
    lose_answer(is_done)
    assert await one.compare_and_set("block", b"2000", 1)
    assert await other.read_versioned("block") == (b"2000", 2)


async def test_the_same_value_written_by_another_node_is_not_taken_for_ones_own(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes reserve the same block of producer ids; the answer of the one that came too late is lost."""
    one, other = two
    run_once = type(one.session)._run_once
    attempts: list[object] = []

    async def once(work: Any) -> Any:
        attempts.append(work)
        if len(attempts) == 1:
            assert await other.compare_and_set("block", b"1000", 0)
            raise UnavailableError("the connection was lost")
        return await run_once(one.session, work)

    monkeypatch.setattr(one.session, "_run_once", once)
    assert not await one.compare_and_set("block", b"1000", 0)


async def test_only_one_of_many_nodes_reserves_a_block_while_sessions_are_ended(two: Two) -> None:
    """Each counts up a document; sessions end at any moment. No step is taken twice, and none is lost."""
    taken: list[int] = []

    async def count_up(store: PostgresMetadataStore) -> None:
        for _ in range(30):
            value, version = await store.read_versioned("block")
            following = int(value or b"0") + 1
            if await store.compare_and_set("block", str(following).encode(), version):
                taken.append(following)

    async def disturb() -> None:
        for turn in range(12):
            await asyncio.sleep(0.01)
            await end_sessions(two[turn % 2])

    await asyncio.gather(*map(count_up, two), disturb())
    assert len(taken) >= 30
    assert sorted(taken) == list(range(1, len(taken) + 1))
    assert await two[0].read_versioned("block") == (str(len(taken)).encode(), len(taken))


async def test_a_server_that_stays_away_is_reported_as_one_to_ask_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "connect", raising(UnavailableError("away")))
    await end_sessions(two[0])
    with pytest.raises(UnavailableError):
        await two[0].session.run(lambda connection: connection.fetch("SELECT 1"), repeat_for_s=0.2)


async def test_a_statement_that_is_refused_is_not_repeated(two: Two) -> None:
    attempts: list[object] = []

    async def wrong(connection: Any) -> None:
        attempts.append(connection)
        await connection.fetch("SELECT nothing FROM nowhere")

    with pytest.raises(StorageError, match="nowhere") as refused:
        await two[0].session.run(wrong)
    assert not isinstance(refused.value, UnavailableError)
    assert len(attempts) == 1


async def test_work_that_is_cancelled_leaves_no_half_read_connection(two: Two) -> None:
    one, _ = two
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await one.session.run(lambda connection: connection.fetch("SELECT pg_sleep(5)"))
    assert await one.load_topics() == []


async def test_a_restart_of_the_server_costs_a_pause_and_no_error(two: Two, durable_postgres: PostgresServer) -> None:
    one, other = two
    await one.create_topic(ORDERS)
    await asyncio.to_thread(durable_postgres.restart)
    assert await one.load_topics() == [ORDERS]
    assert await other.compare_and_set("rights", b"x", 0)


@plants(FOLLOWING)
@unforeseen
async def test_following_goes_on_after_a_failure(
    error: BaseException, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    one, other = two
    heard = Heard(other)

    async def fails() -> None:
        other.on_placement_changed.remove(fails)
        raise type(error)(*error.args)

    other.on_placement_changed.insert(0, fails)
    with logged(FOLLOWING):
        await one.create_topic(ORDERS)
        await until(lambda: heard.kinds == ["placement", "topics"])


async def test_a_request_is_served_while_the_connection_has_to_be_made_anew(two: Two) -> None:
    """Handlers begin without a task, on Python 3.11; the time-outs of the database's library need one."""
    store, _ = two
    await store.session.close()
    loop = asyncio.get_running_loop()
    started: asyncio.Future[eager.Finished[object] | asyncio.Task[object]] = loop.create_future()

    def begin() -> None:
        try:
            started.set_result(eager.start(store.read_versioned("key"), loop))
        except RuntimeError as error:
            started.set_exception(error)

    loop.call_soon(begin)
    assert await (await started) == (None, 0)
