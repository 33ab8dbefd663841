"""Share groups on a broker that may have none: made when they are asked for, or have left something."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from fencepost.broker.kernel.topic_partition import SHARE_GROUP_STATE_TOPIC
from fencepost.broker.share.lazy_service import LazyShareService
from tests.support.group_broker import GroupBroker


def on_demand(broker: GroupBroker) -> LazyShareService:
    topics: Any = cast("Any", broker.topics)
    return LazyShareService(
        topics, broker.groups, broker.group_configs, broker.settings, broker.clock, take_producer_id=lambda: None
    )


async def test_the_service_is_made_once_at_its_first_use() -> None:
    async with GroupBroker() as broker:
        shares = on_demand(broker)
        followers = list(broker.topics.on_resigned)
        shares.start()
        await shares.ensure_loaded()
        assert broker.topics.on_resigned == followers
        service = shares.get()
        assert broker.topics.on_resigned != followers, "it is started"
        assert shares.get() is service
        await shares.close()
        assert broker.topics.on_resigned == followers


async def test_state_that_is_kept_is_loaded_at_the_start() -> None:
    async with GroupBroker() as broker:
        await broker.topics.ensure_internal(SHARE_GROUP_STATE_TOPIC)
        shares = on_demand(broker)
        shares.start()
        await shares.ensure_loaded()
        assert all(partition.state.name == "ACTIVE" for partition in shares.get().coordinator._runtime.partitions())
        await shares.close()


async def test_a_failed_import_may_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with GroupBroker() as broker:
        shares = on_demand(broker)
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "fencepost.broker.share.service", None)
            with pytest.raises(ImportError):
                shares.get()
        await shares.close()
        assert shares.get() is shares.get()
        await shares.close()
