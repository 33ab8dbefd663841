"""Requests that are like an earlier one of their connection: known by their bytes, they are not decoded again.

For which APIs, and what one that remembers requests has to do. Whatever it does not know goes the way of the API's
handler, and what it answers is what that handler would have answered, byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import PendingReply, Reply


class RequestCache(Protocol):
    """Those of one API on one connection."""

    def remember(self, frame: memoryview, body_position: int, request: Any, version: int) -> None:
        """Remember a request that was decoded, if others like it can be told by their bytes."""

    def dispatch(
        self, frame: memoryview, version: int, correlation_id: int
    ) -> Reply | asyncio.Future[Reply] | PendingReply:
        """Start a request that is known: its reply, or what ends in it. None, and nothing is done, for any other."""


class _CacheModule(NamedTuple):
    """Where an API's templates are: imported when they are first needed, as handlers are."""

    module: str
    name: str


CACHES: Final = {
    ApiKey.PRODUCE: _CacheModule("produce_cache", "ProduceCache"),
    ApiKey.FETCH: _CacheModule("fetch_cache", "FetchCache"),
    ApiKey.OFFSET_COMMIT: _CacheModule("offset_commit_cache", "OffsetCommitCache"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _CacheModule("transaction_cache", "AddPartitionsToTxnCache"),
    ApiKey.END_TXN: _CacheModule("transaction_cache", "EndTxnCache"),
}


def new_request_cache(
    api_key: int,
    services: Services,
    loop: asyncio.AbstractEventLoop,
    block_connection: Callable[[asyncio.Future[Any]], None],
) -> RequestCache:
    """For a connection. Raises ImportError and OSError where they cannot be loaded: there may be no descriptor.

    block_connection: starts no other request of the connection until one is answered.
    """
    module, name = CACHES[ApiKey(api_key)]
    make = getattr(import_module(f"{__package__}.{module}"), name)
    if api_key == ApiKey.PRODUCE:
        return cast("RequestCache", make(services, loop, block_connection))
    return cast("RequestCache", make(services, loop))
