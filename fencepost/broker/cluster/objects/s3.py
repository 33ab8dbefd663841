"""The object store over S3's API, or Azure's, by obstore.

Every request has a time limit, and none is repeated here: see `ObjectStore`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from fencepost.broker.cluster.objects.credentials_file import credentials_file
from fencepost.broker.cluster.objects.location import DEFAULT_REGION, ObjectLocation
from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreRefusedError,
    ObjectStoreTroubleError,
    ObjectTooShortError,
    StoredObject,
)

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, S3Config

ANSWER_LIMIT_S: Final = 10.0
"""Time for an answer to a small request. S3 answers within 0.2 s, and within 1 s if it is busy."""
SLOWEST_BYTES_PER_S: Final = 1024 * 1024
"""Slower transfers fail: a sealed segment of 64 MB takes a minute then."""
CONNECT_LIMIT: Final = timedelta(seconds=3)
REQUESTS_AT_ONCE: Final = 16
PARTS_FROM_BYTES: Final = 16 * 1024 * 1024
"""Larger objects are sent in parts of `PART_BYTES`; of a file, no more than `PARTS_AT_ONCE` are in memory."""
PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 2
FLUSH_PARTS_AT_ONCE: Final = 4
"""Of bytes that are in memory anyway, as those of a flush are: clients wait for it, and one connection is slow."""
CHUNK_BYTES: Final = 1024 * 1024
"""Bytes that are received before a write to the file, in one step of the event loop."""
NAMES_PER_DELETE: Final = 1000
LISTED_PER_PAGE: Final = 1000
THREADS_END_S: Final = 0.2
"""How long the process waits at its end for obstore's threads. One that delivers an answer after the end of the
interpreter aborts the process: 24 of 60 short programs ended so, and none with this pause."""
_OWNER_ONLY = 0o600

atexit.register(time.sleep, THREADS_END_S)


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]*)")
"""The first line: those that follow in Azure's answers have the request's id and time."""
_NOT_DELETED = re.compile(r"(?:DeleteObjects|Bulk delete) request failed for key .*: (.*) \(code: (\w+)\)")
"""One of many objects, by the answer to a request that the store has carried out."""
_SENT_TO = re.compile(r"Error performing [A-Z]+ (\w+://[^/\s]+)")
_CAUSE = re.compile(r'(?:message|error): "([^"\\]*)"')
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
"""The cause of an error without an answer, which obstore reports in the lines for debugging only."""
_TEMPORARY_CODES = frozenset(
    {
        *("ExpiredToken", "RequestTimeTooSkewed", "RequestTimeout", "SlowDown", "TokenRefreshRequired"),
        *("InternalError", "ServiceUnavailable"),
    }
)
_BEYOND_HTTP = 400
_BEYOND_THE_END = 416
_SERVER_FAULT = 500
_TEMPORARY_STATUS = frozenset({408, 425, 429})
_MISSING = frozenset({"NoSuchKey", "BlobNotFound", "404"})
"""The last one is in Azure's answer to a request that removes many."""
_NOT_SERVED = frozenset({"NotImplemented", "MethodNotAllowed"})


class S3Objects:
    """The object store of a location, for one event loop. requests_at_once: more wait.

    requests: counts by operation (put, get, list, delete) and outcome (done, missing, failed).
    """

    def __init__(self, location: ObjectLocation, *, requests_at_once: int = REQUESTS_AT_ONCE) -> None:
        """Raises ObjectStoreRefusedError if the configuration cannot be used."""
        self.location = location
        self._prefix = f"{location.prefix}/" if location.prefix else ""
        self._requests = asyncio.Semaphore(requests_at_once)
        self._deletes_many = True
        self.requests: Counter[tuple[str, str]] = Counter()
        self._store = self._open()

    def _open(self) -> S3Store | AzureStore:
        location = self.location
        # The time limits are set per request; those of the client are longer than any of them.
        client: ClientConfig = {
            "allow_http": _endpoint_of(location).startswith("http://"),
            "connect_timeout": CONNECT_LIMIT,
            "timeout": timedelta(hours=1),
        }
        try:
            if location.certificate_file is not None:
                client["root_certificate"] = Path(location.certificate_file).read_bytes()
            if location.scheme == "az":
                from fencepost.broker.cluster.objects.azure import open_container

                return open_container(location, client)
            return self._open_bucket(client)
        except (BaseError, ValueError, OSError) as error:
            raise ObjectStoreRefusedError(f"{location} cannot be used: {_first_line(error)}") from error

    def _open_bucket(self, client: ClientConfig) -> S3Store:
        location = self.location
        environment = os.environ
        config: dict[str, Any] = {"disable_bulk_delete": not self._deletes_many}
        config |= {
            key: value
            for key, value in (
                ("endpoint", location.endpoint),
                ("access_key_id", location.access_key_id),
                ("secret_access_key", location.secret_access_key),
                ("session_token", location.session_token),
                ("virtual_hosted_style_request", location.is_virtual_hosted),
            )
            if value is not None
        }
        region = location.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        config["region"] = region or DEFAULT_REGION
        if not _endpoint_of(location).startswith("http://") and "AWS_UNSIGNED_PAYLOAD" not in environment:
            # TLS covers the bytes already. A SHA-256 for the signature takes 0.5 s of a processor for a gigabyte.
            config["unsigned_payload"] = True
        typed: S3Config = config  # type: ignore[assignment]
        keys = credentials_file() if location.access_key_id is None else None
        return S3Store(
            location.bucket,
            config=typed,
            client_options=client,
            retry_config={"max_retries": 0},
            credential_provider=keys,
        )

    async def put(self, name: str, content: bytes | bytearray | memoryview) -> None:
        async with self._request("put", name, len(content)):
            await obstore.put_async(
                self._store,
                self._prefix + name,
                content,
                use_multipart=len(content) > PARTS_FROM_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=FLUSH_PARTS_AT_ONCE,
            )

    async def put_file(self, name: str, path: str) -> None:
        size_bytes = os.stat(path).st_size
        async with self._request("put", name, size_bytes):
            await obstore.put_async(
                self._store,
                self._prefix + name,
                Path(path),
                use_multipart=size_bytes > PARTS_FROM_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    async def get(self, name: str) -> bytes:
        async with self._request("get", name) as limit:
            result = await obstore.get_async(self._store, self._prefix + name)
            _extend(limit, result.meta["size"])
            return bytes(await result.bytes_async())

    async def get_range(self, name: str, position: int, length_bytes: int) -> bytes:
        async with self._request("get a part of", name, length_bytes):
            found = bytes(
                await obstore.get_range_async(self._store, self._prefix + name, start=position, length=length_bytes)
            )
        if len(found) != length_bytes:
            raise ObjectTooShortError(
                f"{self._at(name)} has {len(found)} of the {length_bytes} bytes from position {position} on"
            )
        return found

    async def get_file(self, name: str, path: str) -> int:
        async with self._request("get", name) as limit:
            result = await obstore.get_async(self._store, self._prefix + name)
            size_bytes = result.meta["size"]
            _extend(limit, size_bytes)
            written = 0
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
            try:
                async for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                    written += _write_all(descriptor, memoryview(chunk))
            finally:
                os.close(descriptor)
        if written != size_bytes:
            raise ObjectStoreTroubleError(f"{self._at(name)} ended after {written} of {size_bytes} bytes")
        return size_bytes

    async def list(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        start = len(self._prefix)
        pages = obstore.list(self._store, self._prefix + prefix, chunk_size=LISTED_PER_PAGE).__aiter__()
        while True:
            async with self._request("list", prefix):
                try:
                    page = await pages.__anext__()
                except StopAsyncIteration:
                    return
            # The listing leaves out the "/" at the end of a prefix; so a name of the same beginning is no object of it.
            yield [StoredObject(one["path"][start:], one["size"]) for one in page]

    async def delete(self, names: Sequence[str]) -> None:
        for share in _shares(names, NAMES_PER_DELETE):
            paths = [self._prefix + name for name in share]
            try:
                async with self._request("delete", share[0], len(share) * CHUNK_BYTES // 100):
                    await obstore.delete_async(self._store, paths)
            except ObjectMissingError:
                # Azure names one that it has not, and may have left others out.
                if len(share) > 1:
                    for name in share:
                        await self.delete([name])
            except _NotServedError:
                # Servers that cannot delete many at once are asked for one at a time from now on.
                self._deletes_many = False
                self._store = self._open()
                async with self._request("delete", share[0], len(share) * CHUNK_BYTES):
                    await obstore.delete_async(self._store, paths)

    @asynccontextmanager
    async def _request(self, action: str, name: str, transferred_bytes: int = 0) -> AsyncIterator[asyncio.Timeout]:
        """One request: waits for its turn, has a time limit, and names its errors."""
        operation = action.partition(" ")[0]
        outcome = "failed"
        async with self._requests:
            limit_s = ANSWER_LIMIT_S + transferred_bytes / SLOWEST_BYTES_PER_S
            try:
                async with asyncio.timeout(limit_s) as limit:
                    yield limit
                outcome = "done"
            except TimeoutError as error:
                raise ObjectStoreTroubleError(f"cannot {action} {self._at(name)} within its time limit") from error
            except (FileNotFoundError, BaseError) as error:
                failure = self._error(action, name, error)
                if isinstance(failure, ObjectMissingError):
                    outcome = "missing"
                raise failure from error
            finally:
                self.requests[operation, outcome] += 1

    def _at(self, name: str) -> str:
        return f"{self.location.scheme}://{self.location.bucket}/{self._prefix}{name}"

    def _error(self, action: str, name: str, error: Exception) -> ObjectStoreError:
        """Return the error in our terms, with the server's reason."""
        text = str(error)
        status, code, message = (_found(pattern, text) for pattern in (_STATUS, _CODE, _MESSAGE))
        not_deleted = _NOT_DELETED.search(text)
        if not_deleted is not None:
            message, code = not_deleted.groups()
        if code in _MISSING or (not code and isinstance(error, FileNotFoundError)):
            return ObjectMissingError(f"there is no object {self._at(name)}")
        reason = (f"{code}: {message}" if code and message else _without_answer(text)).rstrip(".")
        said = f"cannot {action} {self._at(name)}: {reason}"
        number = int(status) if status else 0
        if code in _NOT_SERVED:
            return _NotServedError(said)
        if number == _BEYOND_THE_END:
            return ObjectTooShortError(said)
        is_refusal = (
            not_deleted is not None
            or isinstance(error, (FileNotFoundError, PermissionDeniedError, UnauthenticatedError))
            or (_BEYOND_HTTP <= number < _SERVER_FAULT and number not in _TEMPORARY_STATUS)
        )
        if is_refusal and code not in _TEMPORARY_CODES:
            return ObjectStoreRefusedError(said)
        return ObjectStoreTroubleError(said)


def _endpoint_of(location: ObjectLocation) -> str:
    """The endpoint that is asked: of the location, or of the environment, as Amazon's tools read it; empty for the
    cloud's own."""
    if location.endpoint or location.scheme != "s3":
        return location.endpoint or ""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


class _NotServedError(ObjectStoreRefusedError):
    """The server does not have this operation."""


def _extend(limit: asyncio.Timeout, transferred_bytes: int) -> None:
    """Add the time of a transfer, now that its size is known."""
    when_s = limit.when()
    assert when_s is not None
    limit.reschedule(when_s + transferred_bytes / SLOWEST_BYTES_PER_S)


def _write_all(descriptor: int, content: memoryview) -> int:
    size_bytes = len(content)
    while content:
        content = content[os.write(descriptor, content) :]
    return size_bytes


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return "" if match is None else match[1]


def _without_answer(text: str) -> str:
    """Why there is no answer, by the text of an error."""
    first_line, _, details = text.partition("\n")
    certificates = [f"the certificate is refused: {found}" for found in _CERTIFICATE.findall(details)]
    cause = next(iter(certificates or reversed(_CAUSE.findall(details))), "")
    return f"no answer from {_found(_SENT_TO, first_line)}: {cause}" if cause else first_line.strip()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()


def _shares(names: Sequence[str], count: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), count):
        yield names[start : start + count]
