"""Keys in a shared credentials file: they are read again, and a file without them is named."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from fencepost.broker.cluster.objects import credentials_file
from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.objects.store import ObjectStoreRefusedError

REQUEST = re.compile(rb"Credential=(\w+)/")


def write_keys(path: Path, key: str, profile: str = "default") -> None:
    """Replace the file, as tools do."""
    made = path.with_suffix(".new")
    made.write_text(f"[{profile}]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")
    os.replace(made, path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    path = tmp_path / "credentials"
    monkeypatch.setenv(credentials_file.VARIABLE, str(path))
    return path


async def test_keys_that_are_replaced_in_the_file_are_used_without_a_restart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_file, "READ_AGAIN_AFTER", timedelta(0))
    used: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        used.extend(REQUEST.findall(await reader.readuntil(b"\r\n\r\n")))
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
        await writer.drain()
        writer.close()

    write_keys(path, "first")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        objects = S3Objects(ObjectLocation("bucket", endpoint=f"http://127.0.0.1:{port}"))
        await objects.put("a", b"")
        write_keys(path, "second")
        async with asyncio.timeout(30):
            while used[-1] != b"second":
                await objects.put("a", b"")
    assert used[0] == b"first"


async def test_a_key_that_is_refused_gives_way_to_the_one_in_the_file_without_a_restart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_file, "READ_AGAIN_AFTER", timedelta(seconds=1))
    valid = b"first"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (used,) = REQUEST.findall(await reader.readuntil(b"\r\n\r\n"))
        body = b"" if used == valid else b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key</Message></Error>"
        status = b"403 Forbidden" if body else b"200 OK"
        head = b"HTTP/1.1 %b\r\nETag: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    write_keys(path, "first")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        objects = S3Objects(ObjectLocation("bucket", endpoint=f"http://127.0.0.1:{port}"))
        await objects.put("a", b"")
        valid = b"second"  # the old key ends before the new one is in the file
        with pytest.raises(ObjectStoreRefusedError, match="InvalidAccessKeyId: No such key"):
            await objects.put("a", b"")
        write_keys(path, "second")
        async with asyncio.timeout(60):
            while True:
                try:
                    await objects.put("a", b"")
                    break
                except ObjectStoreRefusedError:
                    await asyncio.sleep(0.05)


def test_a_profile_is_chosen_by_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_keys(path, "mine", "brokers")
    monkeypatch.setenv("AWS_PROFILE", "brokers")
    found = credentials_file.credentials_file()
    assert found is not None
    assert found()["access_key_id"] == "mine"


def test_keys_in_the_environment_count_before_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert credentials_file.credentials_file() is None


@pytest.mark.parametrize("content", [None, "", "[default]\naws_access_key_id = a", "no section"])
def test_a_file_without_keys_is_named(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    with pytest.raises(
        ObjectStoreRefusedError, match=r"AWS_SHARED_CREDENTIALS_FILE \(.*credentials\), profile default"
    ):
        S3Objects(ObjectLocation("bucket"))
