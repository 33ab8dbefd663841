"""The served APIs before their handlers are imported: the module of `broker.handlers` of each, and its versions.

A module is imported at the first request for one of its APIs: most brokers use few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.broker.requests.served_rows import ROWS


class Served(NamedTuple):
    """The handler module and the versions of one API, as its declaration with `@api` has them.

    module:             the one in `broker.handlers`.
    minimum_version, maximum_version: served, both inclusive.
    advertised_minimum: the lowest version that ApiVersions reports.
    unstable_from:      first version whose message Kafka may still change: served, and shown, only with
                        `unstable.api.versions.enable`.
    """

    module: str
    minimum_version: int
    maximum_version: int
    advertised_minimum: int
    unstable_from: int | None

    def highest_version(self, *, with_unstable: bool) -> int:
        if self.unstable_from is None or with_unstable:
            return self.maximum_version
        return self.unstable_from - 1


SERVED: Final[Mapping[int, Served]] = {key: Served(*row) for key, row in ROWS.items()}
"""By API key, in its order."""
