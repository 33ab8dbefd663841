"""Other nodes that answer when a test says so, for what sends them requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from fencepost.broker.hosting.peers import PeerUnreachable


@dataclass
class SentRequest:
    """A request on its way; `answer` or `lose` ends it."""

    node_id: int
    message: Any
    version: int
    answered: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, response: Any) -> None:
        self.answered.set_result(response)

    def lose(self) -> None:
        self.answered.set_exception(PeerUnreachable("lost"))


class FakePeers:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[SentRequest] = []

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        request = SentRequest(node_id, message, version)
        self.sent.append(request)
        return await request.answered

    async def close(self) -> None:
        pass


async def turns(count: int = 10) -> None:
    """Let what is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)
