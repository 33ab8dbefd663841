"""What an operation on a new broker is done with, while the steps of the broker's event loop are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from scripts.benchmarks.client import Client, require_success


class Bench(NamedTuple):
    """A client of a new broker, and how much of everything.

    sizes:    `partitions` of most operations, `described_partitions` of descriptions of all there are, `records` of a
              large batch, and `producers` of one partition.
    measured: within it the steps of the event loop count.
    """

    client: Client
    sizes: Mapping[str, int]
    measured: Callable[[], AbstractContextManager[None]]

    def measure(self, request: Any) -> Any:
        """The reply to a request whose steps count."""
        with self.measured():
            return require_success(self.client.call(request))
