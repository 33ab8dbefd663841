"""Clients that the workers of Spark keep: Spark uses the same Python processes for one batch after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from fencepost.spark.options import SinkOptions

CONNECT_TIMEOUT_S = 30.0
STATISTICS_INTERVAL_MS = 5
"""The longest wait of a task for the pair of its one transaction. Only the first statistics that have it are read."""
MOST_IDLE_S = 300.0
"""Clients that were not used for longer are replaced: brokers may have closed their connections."""


class Closable(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)

_kept: dict[Hashable, tuple[Any, float]] = {}


@contextmanager
def kept(key: Hashable, make: Callable[[], C], *, is_kept: bool = True) -> Iterator[C]:
    """Use a client of this process, or make it. It is closed after an error, or if it is not to be kept."""
    _close_idle(time.monotonic() - MOST_IDLE_S)
    client, _ = _kept.pop(key, (None, 0.0))
    if client is None:
        client = make()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if is_kept:
        _kept[key] = (client, time.monotonic())
    else:
        client.close()


def is_at_hand(key: Hashable) -> bool:
    """Return whether this process has such a client."""
    return key in _kept


def forget(key: Hashable) -> None:
    """Close a client of this process, so that the next use makes another one."""
    if key in _kept:
        _kept.pop(key)[0].close()


def _close_idle(before_s: float) -> None:
    for key in [key for key, (_, used_s) in _kept.items() if used_s < before_s]:
        _kept.pop(key)[0].close()


def identity(options: SinkOptions) -> Hashable:
    """Return the configuration that two clients must share to replace each other."""
    return (options.named_decision_topic, *sorted(options.client.items()))


def transactional(options: SinkOptions, transactional_id: str, **more: Any) -> Mapping[str, Any]:
    """Return the configuration of a producer with a transactional id."""
    return {
        # `connect` relies on it. A producer connects to most brokers anyway: to the leaders of its partitions.
        "enable.sparse.connections": False,
        "statistics.interval.ms": STATISTICS_INTERVAL_MS,
        **options.client,
        "transactional.id": transactional_id,
        **more,
    }


def connect(producer: Any, topic: str) -> None:
    """Connect a producer, so that init_transactions finds a broker: else librdkafka asks again after 50 or 500 ms.

    The first answer names the brokers, the second one comes from one of them.
    """
    for _ in range(2):
        producer.list_topics(topic, timeout=CONNECT_TIMEOUT_S)
