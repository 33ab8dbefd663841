"""The interface to an object store: its operations and errors.

A name is put once, with all of its bytes, and is never overwritten: an object has a meaning only through the rows that
name it, so no conditional PUT is needed, and every S3-compatible store will do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class ObjectStoreError(Exception):
    """A request that the object store has not carried out, or has not answered. The text is one sentence."""


class ObjectStoreRefusedError(ObjectStoreError):
    """The store does not allow it, or has no such bucket: an operator has to do something first."""


class ObjectMissingError(ObjectStoreError):
    """There is no object of that name."""


class ObjectTooShortError(ObjectStoreRefusedError):
    """The object ends before the range that was asked for."""


class ObjectStoreTroubleError(ObjectStoreError):
    """The store cannot be reached, is slow or fails: it may nevertheless have executed the request."""


class StoredObject(NamedTuple):
    """One object of a listing. When it was put is left out: nothing is decided by the store's clock."""

    name: str
    size_bytes: int


class ObjectStore(Protocol):
    """An object store. Names are those of `names`, below the prefix that the store was opened with.

    All methods raise ObjectStoreError: ObjectStoreRefusedError or ObjectStoreTroubleError, and some, as noted,
    ObjectMissingError. None retries: callers put the same bytes under another name, as a put that seemed to fail
    may arrive later.
    """

    async def put(self, name: str, content: bytes | bytearray | memoryview) -> None:
        """Store an object, whole or not at all."""
        ...

    async def put_file(self, name: str, path: str) -> None:
        """Store a file as an object, whole or not at all. Raises OSError if the file cannot be read."""
        ...

    async def get(self, name: str) -> bytes:
        """Return the bytes of an object. Raises ObjectMissingError."""
        ...

    async def get_range(self, name: str, position: int, length_bytes: int) -> bytes:
        """Return bytes of an object. Raises ObjectMissingError; ObjectTooShortError if the range is not in it."""
        ...

    async def get_file(self, name: str, path: str) -> int:
        """Write an object into a file that does not exist yet; return its size.

        The file is not synced; after an error there may be a part of it. Raises ObjectMissingError and OSError.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        """Iterate over the objects whose names begin with a prefix that ends with "/", a page at a time."""
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Remove any number of objects; names of which the store has none are no error."""
        ...
