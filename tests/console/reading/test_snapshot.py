"""The whole cluster in one look: few requests of a bounded size, and what was left out is said."""

from __future__ import annotations

import pytest

from fencepost.client.errors import UnreachableError
from fencepost.console.reading import topics as topic_reading
from fencepost.console.reading.sharing import Reads
from fencepost.console.reading.snapshot import TopicRow, read_snapshot, snapshot_of, view_of
from fencepost.console.reading.topics import PARTITIONS_PER_REQUEST
from tests.console.simulated import SimulatedCluster, large


async def test_topics_are_summed_up_over_their_partitions() -> None:
    cluster = SimulatedCluster({"orders": 3, "payments": 1})
    cluster.stable["orders"] = 4
    snapshot = await read_snapshot(cluster)
    assert list(snapshot.topics) == [
        TopicRow("orders", cluster.ids["orders"], False, 3, 30, 300, 18, 0, None),
        TopicRow("payments", cluster.ids["payments"], False, 1, 10, 100, 0, 0, None),
    ]
    assert [one.name for one in snapshot.held] == ["orders-0", "orders-1", "orders-2"]
    assert [one.index for one in snapshot.of_topic("orders")] == [0, 1, 2]
    assert snapshot.of_topic("none") == []


async def test_fifty_thousand_partitions_take_few_requests_of_a_bounded_size() -> None:
    cluster = large()
    snapshot = await read_snapshot(cluster)
    assert len(snapshot.partitions) == 50_000
    assert cluster.largest <= PARTITIONS_PER_REQUEST
    assert cluster.asked["ListOffsets"] <= 3 * (50_000 // PARTITIONS_PER_REQUEST + 3)
    assert cluster.asked["DescribeLogDirs"] == 3
    assert cluster.asked["Metadata"] <= 2


async def test_one_broker_of_three_that_is_silent_or_dead_hides_only_what_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_reading, "BROKER_S", 0.05)
    cluster = SimulatedCluster({"orders": 30})
    cluster.silent = {2}
    cluster.dead = {3}
    snapshot = await read_snapshot(cluster)
    assert len(snapshot.offline) == 20
    assert {one.error for one in snapshot.offline} == {
        "broker 2 gave no answer in 0.05 s",
        "no broker answers at broker-3",
    }
    assert [sentence[:18] for sentence in snapshot.missing] == ["Sizes of broker 2 ", "Sizes of broker 3 "]
    (orders,) = snapshot.topics
    assert (orders.records, orders.offline, orders.size_bytes) == (100, 20, 1_000)


async def test_a_topic_that_is_deleted_while_it_is_read_says_so() -> None:
    cluster = SimulatedCluster({"orders": 2, "gone": 2})
    view = await cluster.view()
    del cluster.topics["gone"]
    found = {state.name: state for state in await topic_reading.read_topics(cluster, view)}
    assert {one.error for one in found["gone"].partitions} == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert found["orders"].records == 20


async def test_a_view_is_that_of_a_fresh_snapshot_if_there_is_one() -> None:
    cluster = SimulatedCluster({"orders": 2})
    reads = Reads(60)
    reads.add(cluster)
    assert list((await view_of(reads)).value.topics) == ["orders"]
    await snapshot_of(reads)
    asked = cluster.asked["Metadata"]
    assert list((await view_of(reads)).value.topics) == ["orders"]
    assert cluster.asked["Metadata"] == asked
    cluster.close()
    reads.forget()
    with pytest.raises(UnreachableError):
        await snapshot_of(reads)
