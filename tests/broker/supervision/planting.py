"""Unforeseen exceptions, and which test plants them at which place."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

import fencepost.broker
from fencepost.broker.kernel.supervision import PLACES, Place
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.support.captured_events import capture_logs

Test = TypeVar("Test", bound=Callable[..., Any])

PLANTED: dict[str, list[str]] = {}
"""The tests that plant an exception at a place, by its name."""


class Unforeseen(Exception):  # noqa: N818  # what nobody has a clause for
    """Of a class that no code names."""


class UnforeseenBase(BaseException):  # as some extension modules raise
    """Not even an `Exception`."""


UNFORESEEN = [Unforeseen("planted"), UnforeseenBase("planted"), MemoryError("planted")]
unforeseen = pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)


def plants(*places: Place) -> Callable[[Test], Test]:
    """Declares that a test plants an exception at these places, and holds the broker to their policies."""

    def declare(test: Test) -> Test:
        for place in places:
            PLANTED.setdefault(place.name, []).append(test.__name__)
        return test

    return declare


def all_places() -> dict[str, Place]:
    """Those of every module of the broker."""
    for module in pkgutil.walk_packages(fencepost.broker.__path__, "fencepost.broker."):
        if not module.name.endswith("main__") and module.name != "fencepost.cli.main":
            importlib.import_module(module.name)
    return PLACES


def raising(error: BaseException, times: int = 1_000_000, then: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that raises a new exception like `error` the first `times` times, and then does what `then` does."""
    left = [times]

    def function(*arguments: Any, **named: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise type(error)(*error.args)
        return then(*arguments, **named) if then is not None else None

    return function


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds; fails if it does not within what the busiest machine takes."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # anything may bring it about
            await asyncio.sleep(0.001)


@contextmanager
def logged(place: Place, concerns: TopicPartition | str | None = None, *, times: int = 1) -> Iterator[list[Any]]:
    """Assert that the log has one line, or `times` lines, about failures of this place, and none about other places."""
    with capture_logs() as lines:
        yield lines
    logged_lines = [line for line in lines if line["event"] == "background_work_failed"]
    assert [line["work"] for line in logged_lines] == [place.name] * times, logged_lines
    for line in logged_lines:
        assert line["policy"] == place.policy.value
        assert line["exc_info"] is not None or line["failures"] > 1
        if isinstance(concerns, TopicPartition):
            assert (line["topic"], line["partition"]) == concerns
        elif concerns is not None:
            assert line["concerns"] == concerns
