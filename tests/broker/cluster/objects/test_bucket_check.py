"""The check of a bucket at a start: a store that misses one request is usable, one that misses all is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from fencepost.broker.cluster.objects import bucket_check
from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket
from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.store import ObjectStoreRefusedError, ObjectStoreTroubleError, StoredObject

LOCATION = ObjectLocation("bucket", "")


class Store:
    """A store in memory. failing: raises for a request of a number, or lets it pass."""

    def __init__(self, failing: Callable[[int], None]) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests = 0
        self._failing = failing

    def _request(self) -> None:
        self.requests += 1
        self._failing(self.requests)

    async def put(self, name: str, content: bytes) -> None:
        self._request()
        self.objects[name] = content

    async def get(self, name: str) -> bytes:
        self._request()
        return self.objects[name]

    async def get_range(self, name: str, position: int, length_bytes: int) -> bytes:
        self._request()
        return self.objects[name][position : position + length_bytes]

    async def list(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        self._request()
        yield [StoredObject(name, len(content)) for name, content in self.objects.items()]

    async def delete(self, names: Sequence[str]) -> None:
        self._request()
        for name in names:
            self.objects.pop(name, None)


@pytest.fixture(autouse=True)
def pauses_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_check, "PAUSES_S", (0.0, 0.0, 0.0))


async def checked(store: Any) -> None:
    await check_bucket(store, LOCATION)


@pytest.mark.parametrize("lost", range(1, 7))
async def test_a_request_that_is_lost_is_repeated(lost: int) -> None:
    def fail(request: int) -> None:
        if request == lost:
            raise ObjectStoreTroubleError("cannot list: error sending request")

    store = Store(fail)
    await checked(store)
    assert store.objects == {}


async def test_a_store_that_does_not_answer_is_named_after_four_requests() -> None:
    def fail(_: int) -> None:
        raise ObjectStoreTroubleError("cannot put: error sending request")

    store = Store(fail)
    with pytest.raises(UnusableBucketError, match=r"s3://bucket cannot be written: .*Check the endpoint"):
        await checked(store)
    assert store.requests == 4


async def test_a_step_that_has_taken_long_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_check, "QUICK_S", -1.0)

    def fail(_: int) -> None:
        raise ObjectStoreTroubleError("cannot put within its time limit")

    store = Store(fail)
    with pytest.raises(UnusableBucketError, match="within its time limit"):
        await checked(store)
    assert store.requests == 1


async def test_a_refusal_is_named_at_once() -> None:
    def fail(request: int) -> None:
        if request == 2:
            raise ObjectStoreRefusedError("cannot get: AccessDenied")

    store = Store(fail)
    with pytest.raises(UnusableBucketError, match=r"cannot be read: .*s3:GetObject"):
        await checked(store)
    assert store.requests == 2
