"""Placement: a single node leads every partition; a table of placements notifies its views."""

from __future__ import annotations

from fencepost.broker.hosting.placement import NodeAddress, PlacementTable, SingleNodePlacement
from fencepost.broker.kernel.topic_partition import TopicPartition

NAME = TopicPartition("orders", 0)
FIRST, SECOND = NodeAddress(1, "one", 9092), NodeAddress(2, "two", 9092)


def table() -> PlacementTable:
    made = PlacementTable(lambda name: 1 if name.partition % 2 == 0 else 2)
    made.register(SECOND)
    made.register(FIRST)
    return made


def test_a_single_node_leads_everything_in_its_logs_own_epochs() -> None:
    placement = SingleNodePlacement(FIRST)
    assert placement.is_local(NAME)
    assert placement.leader(NAME) == FIRST
    assert placement.leader_epoch(NAME) == 0
    assert placement.other_nodes() == ()
    assert placement.address(1) == FIRST
    assert placement.address(2) is None


def test_a_partition_that_was_never_placed_is_led_by_the_default_in_epoch_0() -> None:
    view = table().view(1)
    assert view.is_local(NAME)
    assert view.leader(TopicPartition("orders", 1)) == SECOND
    assert view.leader_epoch(NAME) == 0
    assert view.other_nodes() == [SECOND]


def test_every_change_raises_the_epoch_and_notifies_the_old_leader_first() -> None:
    shared = table()
    notified: list[tuple[int, bool, int]] = []
    for node_id in (2, 1):
        view = shared.view(node_id)
        view.on_changed.append(
            lambda name, view=view: notified.append((view.node_id, view.is_local(name), view.leader_epoch(name)))  # type: ignore[misc]
        )
    shared.place(NAME, 2)
    assert notified == [(1, False, 1), (2, True, 1)]
    notified.clear()
    shared.place(NAME, None)
    assert {leads for _, leads, _ in notified} == {False}
    assert shared.place(NAME, 2).epoch == 3


def test_a_partition_is_without_a_leader_while_its_leader_is_not_alive() -> None:
    shared = table()
    view = shared.view(2)
    shared.unregister(1)
    assert view.leader(NAME) is None
    assert view.other_nodes() == []
    shared.register(NodeAddress(1, "elsewhere", 1))
    assert view.leader(NAME) == NodeAddress(1, "elsewhere", 1)
    shared.place(NAME, None)
    assert view.leader(NAME) is None


def test_a_view_that_lags_goes_on_with_what_it_knew_until_it_catches_up() -> None:
    shared = table()
    view = shared.view(1)
    notified: list[TopicPartition] = []
    view.on_changed.append(notified.append)
    view.pause_updates()
    shared.place(NAME, 2)
    shared.place(NAME, None)
    assert (view.is_local(NAME), view.leader_epoch(NAME), notified) == (True, 0, [])
    view.catch_up()
    assert (view.leader(NAME), view.leader_epoch(NAME), notified) == (None, 2, [NAME])


def test_a_forgotten_view_is_not_updated_and_a_new_one_is_up_to_date() -> None:
    shared = table()
    old = shared.view(1)
    shared.forget(old)
    shared.forget(old)
    shared.place(NAME, 2)
    assert old.is_local(NAME)
    assert not shared.view(1).is_local(NAME)
