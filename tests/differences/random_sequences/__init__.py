"""Sequences that nobody thought of: made up step by step from a seed, by theme.

A module of a theme has a `run(exchange, random)`: it asks the next thing by what the broker has said so far and by
`random`, so that two brokers are asked the same things for as long as they answer the same. What happens behind the
first deviation says nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fencepost.protocol.messages.transactions import InitProducerIdRequest
from tests.differences.exchange import Exchange
from tests.differences.random_sequences import (
    classic_groups,
    consumer_groups,
    logs,
    metadata,
    requests,
    share_groups,
    streams_groups,
    transactions,
)

GENERATED: dict[str, Callable[[Exchange, Random], None]] = {
    "transactions": transactions.run,
    "requests": requests.run,
    "logs": logs.run,
    "metadata": metadata.run,
    "classic_groups": classic_groups.run,
    "consumer_groups": consumer_groups.run,
    "share_groups": share_groups.run,
    "streams_groups": streams_groups.run,
}

TIMEOUT_MS = 60_000

RECORDED_SEEDS: dict[str, tuple[int, ...]] = dict.fromkeys(GENERATED, (1, 2, 3))
"""By theme: Kafka's answers to these are kept beside the others."""


def recording_name(theme: str, seed: int) -> str:
    return f"generated/{theme}-{seed}"


def sequence(theme: str, seed: int) -> Callable[[Exchange], None]:
    """What a theme asks for one seed."""

    def run(exchange: Exchange) -> None:
        # Nobody is to be producer 0, the first one of a broker: where that is the default, it would be left out.
        exchange.call(InitProducerIdRequest(None, TIMEOUT_MS), 4)
        GENERATED[theme](exchange, Random(f"{theme} {seed}"))

    return run
