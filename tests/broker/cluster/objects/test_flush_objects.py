"""Objects of large flushes, with a store that fails."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest

from fencepost.broker.cluster.objects import flush_objects
from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.objects.checksums import checksum_in_steps
from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.names import flush_name, flush_of
from fencepost.broker.cluster.objects.object_ids import Uploader, uploader_of
from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.storage.disk import StorageError
from tests.support.modelled_objects import DONE_LATER, LOST_REPLY, NOTHING_DONE, ModelledObjects

UPLOADER = Uploader(3, 7)


def checksum(content: bytes) -> bytes:
    return run_to_end(checksum_in_steps([memoryview(content)]))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_objects, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(flush_objects, "LONGEST_PAUSE_S", 0.004)


async def test_the_bytes_of_a_flush_lie_back_to_back_in_one_object() -> None:
    store = ModelledObjects()
    uploads = FlushUploads(store, "cluster")
    object_id = await uploads.put(UPLOADER, [b"one", memoryview(b"two"), b"three"])
    assert store.objects == {f"cluster/tail/{object_id.hex}": b"onetwothree"}
    assert await uploads.get(object_id, 3, 3, checksum(b"two")) == b"two"


@pytest.mark.parametrize("failure", [LOST_REPLY, NOTHING_DONE, DONE_LATER])
async def test_a_put_that_fails_is_made_again_under_another_name(failure: str) -> None:
    store = ModelledObjects()
    store.next_put_fails = failure
    object_id = await FlushUploads(store, "cluster").put(UPLOADER, [b"bytes"])
    await asyncio.sleep(0.03)
    assert store.puts_count == 2
    assert len(store.objects) == (1 if failure == NOTHING_DONE else 2)
    assert store.objects[f"cluster/tail/{object_id.hex}"] == b"bytes"


async def test_a_store_that_is_away_or_refuses_is_waited_for() -> None:
    store = ModelledObjects()
    store.is_away = True
    put = asyncio.ensure_future(FlushUploads(store, "cluster").put(UPLOADER, [b"bytes"]))
    await asyncio.sleep(0.02)
    store.is_away, store.is_refusing = False, True
    await asyncio.sleep(0.02)
    assert not put.done()
    store.is_refusing = False
    object_id = await put
    assert [flush_of(name) for name in store.objects] == [object_id]


async def test_a_name_tells_who_uploads_and_what_fails_or_is_cancelled_is_given_up() -> None:
    store, abandoned = ModelledObjects(), AbandonedObjects()
    uploads = FlushUploads(store, "cluster", abandoned)
    store.next_put_fails = LOST_REPLY
    object_id = await uploads.put(UPLOADER, [b"bytes"])
    assert uploader_of(object_id) == UPLOADER
    (lost,) = store.objects.keys() - {flush_name("cluster", object_id)}
    assert abandoned.first(10) == [lost]
    store.slowest_s = 10.0
    put = asyncio.ensure_future(uploads.put(UPLOADER, [b"bytes"]))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.wait([put])
    assert len(abandoned.first(10)) == 2
    uploads.abandon([object_id])
    assert abandoned.first(10)[2:] == [flush_name("cluster", object_id)]


async def test_bytes_are_read_through_trouble() -> None:
    store = ModelledObjects(random.Random(1))
    uploads = FlushUploads(store, "cluster")
    object_id = await uploads.put(UPLOADER, [b"0123456789"])
    store.trouble = 0.3
    for _ in range(20):
        assert await uploads.get(object_id, 2, 5, checksum(b"23456")) == b"23456"


async def test_an_object_that_is_missing_or_too_short_is_an_error_of_the_log() -> None:
    store = ModelledObjects()
    uploads = FlushUploads(store, "cluster")
    with pytest.raises(StorageError, match="records are lost"):
        await uploads.get(uuid.uuid4(), 0, 1, None)
    object_id = await uploads.put(UPLOADER, [b"123"])
    store.read_ranges.clear()
    with pytest.raises(StorageError, match="is shorter than it was stored"):
        await uploads.get(object_id, 2, 2, None)
    assert len(store.read_ranges) == 1, "it is not asked for again"


@pytest.mark.parametrize("wrong", [b"123456X", b"1234567 and more", b"7654321"])
async def test_other_bytes_than_were_flushed_are_an_error_that_names_the_object(wrong: bytes) -> None:
    store = ModelledObjects()
    uploads = FlushUploads(store, "cluster")
    object_id = await uploads.put(UPLOADER, [b"1234567"])
    (name,) = store.objects
    store.objects[name] = wrong
    with pytest.raises(StorageError, match=rf"{name} does not hold, from position 2 on, the 5 bytes"):
        await uploads.get(object_id, 2, 5, checksum(b"34567") if wrong[2:7] != b"34567" else checksum(b"other"))
