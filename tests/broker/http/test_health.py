"""Health: a starting broker is alive and not ready, a failed one is neither, and the response names each reason."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from fencepost.broker.http.exchange import HttpResponse
from fencepost.broker.http.health import alive, ready
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition

REQUEST: Any = None
OFFLINE = TopicPartition(TRANSACTION_STATE_TOPIC, 1)


def view(*, failure: str | None = None, is_loading: bool = False, offline: TopicPartition | None = None) -> Any:
    coordinator = SimpleNamespace(is_loading=is_loading, offline_partitions=[3] if is_loading else [])
    metadata = {TRANSACTION_STATE_TOPIC: SimpleNamespace(partition_count=2)}
    logs = {
        name: SimpleNamespace(is_offline=True, offline_reason="the disk") for name in (offline,) if name is not None
    }
    topics = SimpleNamespace(metadata=metadata, directory=logs)
    services = SimpleNamespace(
        transactions=coordinator, groups=SimpleNamespace(is_loading=False, offline_partitions=[]), topics=topics
    )
    return SimpleNamespace(failure=lambda: failure, services=services)


def content(response: HttpResponse) -> tuple[int, Any]:
    return response.status, json.loads("".join(str(piece) for piece in response.pieces))


async def test_a_starting_broker_is_alive_and_not_ready() -> None:
    assert content(await alive(None, REQUEST)) == (200, {"status": "ok"})
    assert content(await ready(None, REQUEST)) == (
        503,
        {"status": "not ready", "reasons": ["the broker is starting"]},
    )


async def test_a_broker_that_serves_is_both() -> None:
    assert content(await alive(view(), REQUEST)) == content(await ready(view(), REQUEST)) == (200, {"status": "ok"})


async def test_a_failed_broker_is_neither() -> None:
    failed = view(failure="out of memory")
    assert content(await alive(failed, REQUEST)) == (503, {"status": "failed", "reasons": ["out of memory"]})
    assert content(await ready(failed, REQUEST)) == (
        503,
        {"status": "not ready", "reasons": ["the broker has failed: out of memory"]},
    )


async def test_what_clients_cannot_use_is_named_and_is_no_reason_for_a_restart() -> None:
    partly = view(is_loading=True, offline=OFFLINE)
    assert content(await alive(partly, REQUEST))[0] == 200
    status, told = content(await ready(partly, REQUEST))
    assert (status, told["reasons"]) == (
        503,
        [
            "the transaction coordinator is loading",
            "partition 3 of the transaction coordinator is offline",
            f"{OFFLINE} is offline: the disk",
        ],
    )
