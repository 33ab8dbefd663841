"""Producer ids: from blocks reserved beforehand, never twice, and never waited for."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.producer_ids import (
    BLOCK_KEY,
    BLOCK_SIZE,
    LOWEST_KEY,
    SKIPPED_IDS,
    ProducerIds,
    above_reserved_blocks,
    after_restore,
)


class Store(InMemoryMetadataStore):
    """Counts writes; can fail, or do the write and lose the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_count = 0
        self.failures: list[str] = []

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        await asyncio.sleep(0)
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            raise ConnectionError("the store is away")
        self.writes_count += 1
        written = await super().compare_and_set(key, value, expected_version)
        if failure == "after":
            raise ConnectionError("the answer was lost")
        return written


async def taken(producer_ids: ProducerIds, count: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        producer_id = producer_ids.take()
        if producer_id is None:
            await asyncio.sleep(0.001)
        else:
            ids.append(producer_id)
    return ids


async def test_ids_count_up_from_zero_without_a_gap_over_blocks() -> None:
    producer_ids = ProducerIds(Store())
    await producer_ids.start()
    assert await taken(producer_ids, 2 * BLOCK_SIZE + 10) == list(range(2 * BLOCK_SIZE + 10))
    await producer_ids.close()


async def test_the_next_block_is_reserved_early_so_that_no_request_waits() -> None:
    store = Store()
    producer_ids = ProducerIds(store)
    await producer_ids.start()
    for _ in range(BLOCK_SIZE * 9 // 10 - 1):
        assert producer_ids.take() is not None
    await asyncio.sleep(0.01)
    assert store.writes_count == 1
    for _ in range(2):
        assert producer_ids.take() is not None
    await asyncio.sleep(0.01)
    assert store.writes_count == 2
    for _ in range(BLOCK_SIZE):
        assert producer_ids.take() is not None
    await producer_ids.close()


async def test_without_a_block_there_is_no_id_and_one_request_is_in_flight() -> None:
    store = Store()
    producer_ids = ProducerIds(store)
    assert [producer_ids.take() for _ in range(5)] == [None] * 5
    await asyncio.sleep(0.01)
    assert producer_ids.take() == 0
    assert store.writes_count == 1
    await producer_ids.close()


async def test_a_block_that_was_reserved_before_a_crash_is_burnt() -> None:
    store = Store()
    before = ProducerIds(store)
    await before.start()
    assert before.take() == 0
    await before.close()
    after = ProducerIds(store)
    await after.start()
    assert after.take() == BLOCK_SIZE
    await after.close()


async def test_two_nodes_on_one_store_never_give_out_the_same_id() -> None:
    store = Store()
    nodes = [ProducerIds(store, node_id=node_id) for node_id in range(3)]
    await asyncio.gather(*(node.start() for node in nodes))
    given_out = [producer_id for node in nodes for producer_id in await taken(node, BLOCK_SIZE + 1)]
    assert len(set(given_out)) == len(given_out)
    for node in nodes:
        await node.close()


async def test_an_unavailable_store_is_retried_and_a_lost_reply_only_burns_a_block() -> None:
    store = Store()
    store.failures = ["before", "after"]
    producer_ids = ProducerIds(store)
    await producer_ids.start()
    assert producer_ids.take() == BLOCK_SIZE
    await producer_ids.close()


async def test_a_start_does_not_wait_for_a_disk_that_fails() -> None:
    class FailingStore(Store):
        async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
            raise StorageError("disk I/O error")

    with pytest.raises(StorageError, match="disk I/O error"):
        await ProducerIds(FailingStore()).start()


async def test_a_block_that_cannot_be_read_is_no_reason_to_begin_again_at_zero() -> None:
    store = Store()
    await store.compare_and_set(BLOCK_KEY, b"{}", 0)
    with pytest.raises(StorageError, match=BLOCK_KEY):
        await ProducerIds(store).start()


async def test_the_last_block_is_not_given_out_beyond_the_greatest_id() -> None:
    store = Store()
    greatest = 2**63 - 1
    await store.compare_and_set(BLOCK_KEY, f'{{"block_start": "0", "block_end": "{greatest - 500}"}}'.encode(), 0)
    producer_ids = ProducerIds(store)
    await producer_ids.start()
    assert producer_ids.take() is None
    await producer_ids.close()


async def test_from_an_old_record_of_blocks_no_id_is_given_out_twice() -> None:
    store = Store()
    before = ProducerIds(store)
    await before.start()
    old, version = await store.read_versioned(BLOCK_KEY)
    assert old is not None
    later = await taken(before, 3 * BLOCK_SIZE)
    await before.close()
    _, version = await store.read_versioned(BLOCK_KEY)
    assert await store.compare_and_set(BLOCK_KEY, above_reserved_blocks(old), version)
    after = ProducerIds(store)
    await after.start()
    assert min(await taken(after, 10)) > max(later) + SKIPPED_IDS // 2
    await after.close()


async def test_after_a_restore_the_ids_of_the_lost_history_are_known_and_not_given_out_again() -> None:
    store = Store()
    before = ProducerIds(store)
    await before.start()
    await before.close()
    assert before.lowest == 0
    restored = InMemoryMetadataStore()
    value, _ = await store.read_versioned(BLOCK_KEY)
    assert value is not None
    for key, written in after_restore({BLOCK_KEY: value, "features": b"{}"}).items():
        assert await restored.compare_and_set(key, written, 0)
    again = ProducerIds(restored)
    await again.start()
    assert min(await taken(again, 10)) > again.lowest > SKIPPED_IDS
    await again.close()


def test_a_restore_from_before_the_first_producer_has_nothing_to_advance() -> None:
    assert after_restore({"features": b"{}"}) == {}
    assert LOWEST_KEY not in after_restore({})


@pytest.mark.parametrize(
    "block",
    [
        b"[" * 100_000,
        b'{"block_start": 0, "block_end": 999}',
        b'{"block_start": "-1", "block_end": "999"}',
        b'{"block_start": "999", "block_end": "0"}',
        b'{"block_start": "0", "block_end": "9999999999999999999"}',
        b'{"block_start": "0", "block_end": "\xd9\xa1"}',
        b'{"block_start": Infinity, "block_end": Infinity}',
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_block_that_no_broker_has_written_is_a_storage_error(block: bytes) -> None:
    with pytest.raises(StorageError, match=BLOCK_KEY):
        above_reserved_blocks(block)
