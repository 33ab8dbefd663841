"""Check of a bucket at the start of a broker: it can be written, read, listed and deleted from.

A fault that is found later is found while clients wait.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.store import (
    ObjectStore,
    ObjectStoreError,
    ObjectStoreRefusedError,
    ObjectStoreTroubleError,
)

CHECKED_PREFIX = "check/"
PAUSES_S: Final = (0.25, 0.75, 2.0)
"""Before the repeats of a step that the store did not answer: one lost connection must not end a start."""
QUICK_S: Final = 5.0
"""A step that has taken longer is not repeated: the store is away or frozen, and the operator waits for the reason."""


class UnusableBucketError(Exception):
    """The bucket lacks an operation that a cluster needs. The text names the operation, the place and the remedy."""


def remedy(error: ObjectStoreError, right: str) -> str:
    """Return the remedy for an error. right: the permission that the request needs."""
    if isinstance(error, ObjectStoreRefusedError):
        return f"Check the bucket's name, the keys, and that they have {right}"
    return (
        "Check the endpoint and region, the network, and the keys: without AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
        "(AZURE_STORAGE_ACCOUNT_KEY for Azure) the machine's role is asked for"
    )


async def check_bucket(store: ObjectStore, location: ObjectLocation) -> None:
    """Put, read, list and delete one small object. Raises UnusableBucketError."""
    name = f"{CHECKED_PREFIX}{uuid.uuid4().hex}"
    content = name.encode()

    async def write() -> bool:
        await store.put(name, content)
        return True

    async def read() -> bool:
        return await store.get(name) == content and await store.get_range(name, 1, 3) == content[1:4]

    async def find() -> bool:
        async for page in store.list(CHECKED_PREFIX):
            if any(found.name == name and found.size_bytes == len(content) for found in page):
                return True
        return False

    async def remove() -> bool:
        await store.delete([name])
        async for page in store.list(CHECKED_PREFIX):
            if any(found.name == name for found in page):
                return False
        return True

    steps: tuple[tuple[str, str, Callable[[], Awaitable[bool]]], ...] = (
        ("written", "s3:PutObject", write),
        ("read", "s3:GetObject", read),
        ("listed", "s3:ListBucket", find),
        ("deleted from", "s3:DeleteObject", remove),
    )
    for doing, right, step in steps:
        try:
            is_as_expected = await _repeated(step)
        except ObjectStoreError as error:
            needed = right if location.scheme == "s3" else "the role Storage Blob Data Contributor"
            raise UnusableBucketError(f"{location} cannot be {doing}: {error}. {remedy(error, needed)}") from error
        if not is_as_expected:
            raise UnusableBucketError(
                f"{location} cannot be {doing}: it does not give back what was put. A cluster needs a store that is "
                "consistent after each write, as S3 is"
            )


async def _repeated(step: Callable[[], Awaitable[bool]]) -> bool:
    now_s = asyncio.get_running_loop().time
    began_s = now_s()
    for pause_s in PAUSES_S:
        try:
            return await step()
        except ObjectStoreTroubleError:
            if now_s() - began_s > QUICK_S:
                raise
            await asyncio.sleep(pause_s)
    return await step()
