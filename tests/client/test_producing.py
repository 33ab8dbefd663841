"""One record outside of transactions."""

from __future__ import annotations

import pytest

from fencepost import Broker
from fencepost.client.cluster import Cluster
from fencepost.client.errors import RefusedError
from fencepost.client.producing import produce
from fencepost.client.session import ClientOptions


async def test_a_record_is_written_and_its_offset_returned() -> None:
    with Broker() as broker:
        broker.topic("receipts")
        cluster = Cluster([(broker.host, broker.port)], ClientOptions())
        (leader,) = (await cluster.view()).nodes
        assert [await produce(cluster, "receipts", 0, leader, b"k", value) for value in (b"1", None)] == [0, 1]
        with pytest.raises(RefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await produce(cluster, "receipts", 7, leader, None, b"1")
        cluster.close()
        assert [record.value for record in broker.records("receipts")] == [b"1", None]
