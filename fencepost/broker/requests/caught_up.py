"""Answers that must include recent changes by another node: a client may have seen them there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse

Response = TypeVar("Response")


def may_have_missed(services: Services, found: Iterable[object | None] = (None,)) -> bool:
    """Whether another node may have created a requested topic, or the leader of a partition may have changed.

    found: the metadata of each topic, None if the topic is unknown; it is not read if there are no other nodes.
    """
    return bool(services.topics.placement.other_nodes()) and any(one is None for one in found)


async def caught_up(
    context: RequestContext, answer: Callable[[], Response | Awaitable[Response | SlicedResponse]]
) -> Response | SlicedResponse:
    """Read the changes by other nodes, then answer."""
    await context.services.topics.catch_up()
    answered = answer()
    return await answered if isinstance(answered, Awaitable) else answered
