"""Interface of the request caches and the table of the APIs that have one.

A cache serves requests that repeat an earlier one of their connection without decoding them. All others go to the API's
handler. A cache gives the same replies as the handler, byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import PendingReply, ReplyFrame


class RequestCache(Protocol):
    """The cached requests of one API on one connection."""

    def remember(self, frame: memoryview, body_position: int, request: Any, version: int) -> None:
        """Remember a decoded request, if later ones like it can be found by their bytes."""

    def dispatch(
        self, frame: memoryview, version: int, correlation_id: int
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""


class _CacheModule(NamedTuple):
    """Module and class of an API's cache: imported at first use, as handlers are."""

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
    """Make the cache of a connection. Raises ImportError, OSError if its module is unreadable, say without descriptor.

    block_connection: lets no other request of the connection start until one is answered.
    """
    module, name = CACHES[ApiKey(api_key)]
    make = getattr(import_module(f"{__package__}.{module}"), name)
    if api_key == ApiKey.PRODUCE:
        return cast("RequestCache", make(services, loop, block_connection))
    return cast("RequestCache", make(services, loop))
