"""Documents that other nodes change, too: this node puts their changes in force as soon as the store reports them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

FOLLOWING = Place("following of changed documents", Policy.RETRY)

FIRST_RETRY_PAUSE_S = 0.1
LONGEST_RETRY_PAUSE_S = 5.0

Reopen = Callable[[], Awaitable[None]]
"""Reads a document again, and puts it in force if another node has changed it. Raises StorageError."""


class FollowedDocuments:
    """Follows changes of other nodes between `start` and `close`.

    All documents are read again after each change of any: there are few, and one that is unchanged costs one look-up.
    A change that cannot be read is tried again until it can: a right that was revoked must not stay in force.
    """

    def __init__(self, store: MetadataStore, documents: Sequence[Reopen]) -> None:
        self._store = store
        self._documents = documents
        self._is_outdated = False
        self._is_closed = False
        self._following: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()

    def start(self) -> None:
        self._store.on_documents_changed.append(self._changed)
        self._changed()  # other nodes may have written since each document was opened

    async def close(self) -> None:
        self._store.on_documents_changed.remove(self._changed)
        self._is_closed = True
        await end_tasks(self._following)

    async def read_again(self) -> None:
        """Return when all documents have been read again, from now on, and are in force."""
        if self._is_closed:
            return
        self._changed()
        while self._following is not None and not self._following.done():
            await asyncio.wait([self._following])

    def _changed(self) -> None:
        # In this node's own context, not in that of the caller, which may be another node of this process.
        self._context.copy().run(self._begin)

    def _begin(self) -> None:
        self._is_outdated = True
        if self._following is None or self._following.done():
            self._following = FOLLOWING.start_retrying(self._follow_while_outdated)

    async def _follow_while_outdated(self) -> None:
        pause_s = FIRST_RETRY_PAUSE_S
        while self._is_outdated:
            self._is_outdated = False
            try:
                for reopen in self._documents:
                    await reopen()
                pause_s = FIRST_RETRY_PAUSE_S
            except StorageError as error:
                self._is_outdated = True
                log.error("changed_documents_not_read", reason=str(error))  # noqa: TRY400  # the reason says it all
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_RETRY_PAUSE_S)
            except BaseException:
                self._is_outdated = True
                raise
