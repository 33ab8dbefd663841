"""Calls of handlers without a dispatcher: the connection of the client, and answers as responses."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from fencepost.broker.requests.api import NoConnection, SlicedResponse, UsualAnswer


class LocalConnection(NoConnection):
    """A connection from this machine."""

    client_host = "127.0.0.1"
    client_port = 50_000
    connection_id = 1


def response_of(answer: Any) -> Any:
    """The response that an answer stands for; None if there is none."""
    if isinstance(answer, UsualAnswer):
        return answer.build()
    return answer.response if isinstance(answer, SlicedResponse) else answer


async def awaited_response(answer: Awaitable[Any]) -> Any:
    """As `response_of`, when the handler has answered."""
    return response_of(await answer)
