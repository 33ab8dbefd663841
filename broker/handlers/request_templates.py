"""Requests that are like an earlier one of their connection: known by their bytes, they are not decoded again.

For which APIs, and what one that remembers requests has to do. Whatever it does not know goes the way of the API's
handler, and what it answers is what that handler would have answered, byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker.handlers.offset_commit_templates import OffsetCommitTemplates
from broker.handlers.produce_templates import ProduceTemplates
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.handlers.api import Services
    from broker.long_polls import Reply


class RequestTemplates(Protocol):
    """Those of one API on one connection."""

    def learn(self, frame: memoryview, body_position: int, request: Any, version: int) -> None:
        """Remember a request that was decoded, if others like it can be told by their bytes."""

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> Reply | asyncio.Future[Reply]:
        """Start a request that is known: its reply, or what ends in it. None, and nothing is done, for any other."""


TEMPLATES: dict[int, Callable[[Services, asyncio.AbstractEventLoop], RequestTemplates]] = {
    ApiKey.PRODUCE: ProduceTemplates,
    ApiKey.OFFSET_COMMIT: OffsetCommitTemplates,
}
