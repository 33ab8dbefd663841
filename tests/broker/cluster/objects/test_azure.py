"""The object store over Azure's API, with Azurite, the emulator by its maker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket
from fencepost.broker.cluster.objects.location import ObjectLocation, read_location
from fencepost.broker.cluster.objects.s3 import PARTS_FROM_BYTES, S3Objects
from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreTroubleError,
    ObjectTooShortError,
)
from scripts.azurite import ACCOUNT, KEY, Azurite
from tests.support.missing_tools import require_azurite


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    require_azurite()
    with Azurite(tmp_path_factory.mktemp("azurite")) as started:
        started.make_container("orders")
        yield started


def location(server: Azurite, container: str = "orders", key: str = KEY) -> ObjectLocation:
    return ObjectLocation(container, "p", endpoint=server.endpoint, scheme="az", account=ACCOUNT, account_key=key)


async def names(store: S3Objects, prefix: str) -> list[str]:
    return [one.name async for page in store.list(prefix) for one in page]


async def test_objects_are_put_read_listed_and_removed(server: Azurite, tmp_path: Path) -> None:
    at = location(server)
    store = S3Objects(at)
    await check_bucket(store, at)
    large = os.urandom(PARTS_FROM_BYTES + 1)
    await store.put("x/large", large)
    (tmp_path / "file").write_bytes(large)
    await store.put_file("x/file", str(tmp_path / "file"))
    await store.put("y/other", b"other")
    assert await store.get("x/large") == large
    assert await store.get_file("x/file", str(tmp_path / "copy")) == len(large)
    assert (tmp_path / "copy").read_bytes() == large
    assert await store.get_range("x/large", 5, 7) == large[5:12]
    assert sorted(await names(store, "x/")) == ["x/file", "x/large"]
    await store.delete(["x/file", "x/large", "y/other"])
    assert await names(store, "x/") == []


async def test_many_are_removed_though_some_are_not_there(server: Azurite) -> None:
    store = S3Objects(location(server))
    for number in range(0, 300, 3):
        await store.put(f"many/{number}", b"1")
    await store.delete([f"many/{number}" for number in range(300)])
    assert await names(store, "many/") == []
    await store.delete(["many/1"])


async def test_a_missing_object_and_a_range_beyond_the_end_have_errors_of_their_own(server: Azurite) -> None:
    store = S3Objects(location(server))
    with pytest.raises(ObjectMissingError, match="there is no object az://orders/p/nothing"):
        await store.get("nothing")
    with pytest.raises(ObjectMissingError):
        await store.get_range("nothing", 0, 1)
    await store.put("short", b"12345")
    with pytest.raises(ObjectTooShortError):
        await store.get_range("short", 3, 5)
    with pytest.raises(ObjectTooShortError):
        await store.get_range("short", 9, 5)


async def test_a_container_that_is_not_there_and_a_wrong_key_are_refusals(server: Azurite) -> None:
    nowhere = location(server, "nowhere")
    with pytest.raises(UnusableBucketError, match=r"az://nowhere.*written: .*ContainerNotFound.*Storage Blob"):
        await check_bucket(S3Objects(nowhere), nowhere)
    with pytest.raises(ObjectStoreRefusedError, match="cannot put az://orders/p/x"):
        await S3Objects(location(server, key="d3Jvbmc=")).put("x", b"1")
    with pytest.raises(ObjectStoreRefusedError, match="cannot be used") as refused:
        S3Objects(location(server, key="not base 64"))
    assert "not base 64" not in str(refused.value)


async def test_the_environment_may_have_the_account_and_the_key(
    server: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    at = read_location(f"az://orders/environment?endpoint={server.endpoint}")
    await check_bucket(S3Objects(at), at)


async def test_a_server_that_does_not_answer_is_trouble() -> None:
    nowhere = ObjectLocation(
        "orders", endpoint=f"http://127.0.0.1:1/{ACCOUNT}", scheme="az", account=ACCOUNT, account_key=KEY
    )
    with pytest.raises(ObjectStoreTroubleError, match="cannot get az://orders/kept: no answer from"):
        await S3Objects(nowhere).get("kept")
