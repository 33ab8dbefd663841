"""The object store over S3's API, against a server."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.broker.cluster.objects import s3
from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket
from fencepost.broker.cluster.objects.location import ObjectLocation, read_location
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreTroubleError,
    ObjectTooShortError,
    StoredObject,
)
from tests.support.certificates import Authority
from tests.support.object_server import ObjectServer


async def listed(store: S3Objects, prefix: str) -> dict[str, StoredObject]:
    return {one.name: one async for page in store.list(prefix) for one in page}


async def test_an_object_is_read_as_it_was_put_whole_or_in_part(objects: ObjectServer, tmp_path: Path) -> None:
    store = S3Objects(objects.make_bucket("a/prefix"))
    await store.put("log/1/x", b"0123456789")
    await store.put("log/1/y", memoryview(bytearray(b"abc")))
    assert await store.get("log/1/x") == b"0123456789"
    assert await store.get_range("log/1/x", 3, 4) == b"3456"
    assert await store.get_file("log/1/y", str(tmp_path / "y")) == 3
    assert (tmp_path / "y").read_bytes() == b"abc"


async def test_requests_are_counted_by_operation_and_outcome(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket())
    await store.put("x", b"0123")
    await store.get("x")
    await store.get_range("x", 1, 2)
    with pytest.raises(ObjectMissingError):
        await store.get("y")
    await listed(store, "")
    await store.delete(["x"])
    objects.refused_status = 503
    with pytest.raises(ObjectStoreTroubleError):
        await store.put("z", b"")
    objects.heal()
    counts = dict(store.requests)
    assert counts.pop(("list", "done")) >= 1
    assert counts.pop(("delete", "done")) >= 1
    counts.pop(("delete", "failed"), None)  # of a server that cannot delete many at once
    assert counts == {("put", "done"): 1, ("put", "failed"): 1, ("get", "done"): 2, ("get", "missing"): 1}


async def test_names_are_below_the_prefix(objects: ObjectServer) -> None:
    location = objects.make_bucket("a/prefix")
    await S3Objects(location).put("log/x", b"1")
    assert objects.files(location) == {"a/prefix/log/x": b"1"}


@pytest.mark.parametrize("size_bytes", [0, 1000, s3.PARTS_FROM_BYTES, s3.PARTS_FROM_BYTES + 12345])
async def test_a_file_comes_back_as_it_was(objects: ObjectServer, tmp_path: Path, size_bytes: int) -> None:
    store = S3Objects(objects.make_bucket())
    content = bytes(range(251)) * (size_bytes // 251 + 1)
    (tmp_path / "sent").write_bytes(content[:size_bytes])
    await store.put_file("seg/x.log", str(tmp_path / "sent"))
    assert await store.get_file("seg/x.log", str(tmp_path / "got")) == size_bytes
    assert (tmp_path / "got").read_bytes() == content[:size_bytes]


async def test_a_large_flush_is_sent_in_parts_and_is_one_object(objects: ObjectServer) -> None:
    location = objects.make_bucket()
    store = S3Objects(location)
    content = bytes(range(256)) * (s3.PARTS_FROM_BYTES // 256 + 99)
    objects.heal()
    await store.put("tail/1", memoryview(content))
    assert sum("partNumber" in path for _, path in objects.requests) == 3
    assert objects.files(location)["tail/1"] == content


async def test_a_file_is_never_overwritten_by_an_object(objects: ObjectServer, tmp_path: Path) -> None:
    store = S3Objects(objects.make_bucket())
    await store.put("x", b"1")
    (tmp_path / "x").write_bytes(b"here")
    with pytest.raises(FileExistsError):
        await store.get_file("x", str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"here"


async def test_a_listing_holds_all_objects_of_a_prefix_and_no_others(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket("p"), requests_at_once=8)
    names = [f"log/a/{number}" for number in range(1005)]
    await asyncio.gather(*(store.put(name, b"12") for name in [*names, "log/ab/1", "tail/1"]))
    found = await listed(store, "log/a/")
    assert sorted(found) == sorted(names)
    assert {one.size_bytes for one in found.values()} == {2}
    assert await listed(store, "nothing/") == {}


async def test_many_are_deleted_and_missing_ones_are_no_error(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket())
    for name in "abc":
        await store.put(name, b"1")
    await store.delete(["a", "nothing", "b"])
    await store.delete([])
    assert list(await listed(store, "")) == ["c"]


async def test_a_server_that_cannot_delete_many_at_once_is_asked_so_only_once(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket())
    await store.delete(["a"])
    await store.delete(["b"])
    assert [method for method, path in objects.requests if path.endswith("?delete")] == ["POST"]


async def test_an_object_that_the_store_does_not_remove_is_a_refusal_and_the_others_are_removed(
    objects: ObjectServer,
) -> None:
    location = objects.make_bucket("p")
    store = S3Objects(location)
    for name in "abc":
        await store.put(name, b"1")
    objects.undeletable = {"p/b"}
    with pytest.raises(ObjectStoreRefusedError, match=r"cannot delete .*: AccessDenied: Access Denied"):
        await store.delete(["a", "b", "c"])
    objects.undeletable = set()
    assert set(objects.files(location)) == {"p/b"}


async def test_an_object_that_is_not_there_is_named(objects: ObjectServer, tmp_path: Path) -> None:
    store = S3Objects(objects.make_bucket("p"))
    with pytest.raises(ObjectMissingError, match=r"there is no object s3://bucket-\d+/p/nothing"):
        await store.get("nothing")
    with pytest.raises(ObjectMissingError):
        await store.get_range("nothing", 0, 1)
    with pytest.raises(ObjectMissingError):
        await store.get_file("nothing", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


async def test_a_part_beyond_the_end_of_an_object_is_refused(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket())
    await store.put("x", b"12345")
    with pytest.raises(ObjectTooShortError):
        await store.get_range("x", 3, 5)
    with pytest.raises(ObjectTooShortError):
        await store.get_range("x", 9, 5)


async def test_a_bucket_that_is_not_there_is_a_refusal_and_no_missing_object(objects: ObjectServer) -> None:
    location = objects.make_bucket()
    store = S3Objects(ObjectLocation("nothing", endpoint=location.endpoint, access_key_id="a", secret_access_key="b"))
    with pytest.raises(ObjectStoreRefusedError, match="NoSuchBucket"):
        await store.put("x", b"1")
    with pytest.raises(ObjectStoreRefusedError, match="NoSuchBucket"):
        await store.get("x")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ObjectStoreRefusedError),
        (403, ObjectStoreRefusedError),
        (400, ObjectStoreRefusedError),
        (408, ObjectStoreTroubleError),
        (429, ObjectStoreTroubleError),
        (500, ObjectStoreTroubleError),
        (503, ObjectStoreTroubleError),
    ],
)
async def test_an_answer_is_a_refusal_or_trouble_by_its_status(
    objects: ObjectServer, status: int, expected: type[Exception]
) -> None:
    store = S3Objects(objects.make_bucket())
    objects.heal()
    objects.refused_status = status
    with pytest.raises(expected):
        await store.put("x", b"1")
    with pytest.raises(expected):
        await store.get("x")
    assert len(objects.requests) == 2, "nothing is asked again"


async def test_a_server_that_does_not_listen_is_trouble(objects: ObjectServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        store = S3Objects(ObjectLocation("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b"))
        with pytest.raises(ObjectStoreTroubleError, match="cannot put s3://bucket/x"):
            await store.put("x", b"1")


@pytest.mark.parametrize(
    ("endpoint", "cause"),
    [
        ("http://127.0.0.1:1", "no answer from http://127.0.0.1:1: Connection refused"),
        ("http://nowhere.invalid", "no answer from http://nowhere.invalid: failed to lookup address information"),
    ],
)
async def test_why_a_server_does_not_answer_is_said(endpoint: str, cause: str) -> None:
    store = S3Objects(read_location(f"s3://bucket?endpoint={endpoint}&access_key_id=a&secret_access_key=b"))
    with pytest.raises(ObjectStoreTroubleError, match=re.escape(cause)):
        await store.put("name", b"content")


async def test_a_server_that_does_not_answer_is_trouble_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "ANSWER_LIMIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = S3Objects(ObjectLocation("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b"))
        for request in (store.put("x", b"1"), store.get("x"), store.delete(["x"]), listed(store, "")):
            with pytest.raises(ObjectStoreTroubleError, match="within its time limit"):
                await request


async def test_more_requests_than_the_bound_wait(objects: ObjectServer) -> None:
    store = S3Objects(objects.make_bucket(), requests_at_once=2)
    objects.heal()
    objects.delay_s = 0.2
    puts = [asyncio.ensure_future(store.put(str(number), b"1")) for number in range(6)]
    await asyncio.sleep(0.1)
    assert len(objects.requests) <= 2
    objects.delay_s = 0
    await asyncio.gather(*puts)
    assert len(objects.requests) == 6


async def test_a_bucket_that_works_passes_the_check_and_stays_empty(objects: ObjectServer) -> None:
    location = objects.make_bucket("p")
    await check_bucket(S3Objects(location), location)
    assert objects.files(location) == {}


async def test_the_check_names_what_is_missing_and_what_to_do(objects: ObjectServer) -> None:
    location = objects.make_bucket()
    nowhere = ObjectLocation("nothing", endpoint=location.endpoint, access_key_id="a", secret_access_key="b")
    with pytest.raises(UnusableBucketError, match=r"s3://nothing\?endpoint=.* cannot be written: .*NoSuchBucket.*name"):
        await check_bucket(S3Objects(nowhere), nowhere)
    objects.refused_status = 503
    with pytest.raises(UnusableBucketError, match=r"cannot be written: .*Check the endpoint"):
        await check_bucket(S3Objects(location), location)


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("asked", [None, "false", "true"])
async def test_the_signature_covers_the_bytes_where_no_encryption_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_encrypted: bool, asked: str | None
) -> None:
    if asked is not None:
        monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", asked)
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.server().load_into(context)
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(len(b"batches"))
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context if is_encrypted else None) as server:
        port = server.sockets[0].getsockname()[1]
        location = ObjectLocation(
            "bucket",
            endpoint=f"{'https' if is_encrypted else 'http'}://127.0.0.1:{port}",
            access_key_id="key",
            secret_access_key="secret",
            certificate_file=str(authority.path),
        )
        await S3Objects(location).put("x", b"batches")
    (head,) = heads
    covered = dict(line.split(": ", 1) for line in head.decode().lower().splitlines()[1:] if line)
    is_covered = asked == "false" if asked is not None else not is_encrypted
    expected = hashlib.sha256(b"batches").hexdigest() if is_covered else "unsigned-payload"
    assert covered["x-amz-content-sha256"] == expected


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ObjectStoreRefusedError, match=r"cannot be used: .*/nowhere/ca\.pem"):
        S3Objects(ObjectLocation("bucket", certificate_file="/nowhere/ca.pem"))


SHORT_PROGRAM = """
import asyncio
import obstore
from obstore.store import MemoryStore
from fencepost.broker.cluster.objects import s3

async def main():
    store = MemoryStore()
    for number in range(20):
        await asyncio.gather(*(obstore.put_async(store, f"{number}-{each}", b"x" * 1000) for each in range(8)))

asyncio.run(main())
"""


def test_a_program_that_ends_right_after_an_answer_does_not_abort() -> None:
    endings = [
        subprocess.Popen([sys.executable, "-c", SHORT_PROGRAM], stderr=subprocess.PIPE, text=True) for _ in range(8)
    ]
    for ending in endings:
        _, errors = ending.communicate()
        assert ending.returncode == 0, errors
