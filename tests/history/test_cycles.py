"""Cycles among transactions, proved by the reads and writes that close them."""

from __future__ import annotations

from fencepost.history.checker import check_history
from fencepost.history.findings import Anomaly
from tests.history.story import Story


def test_transactions_whose_writes_lie_against_the_order_of_time_are_a_write_cycle(story: Story) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    first = story.send(one, "a", 0, 1)
    story.commit(one)
    other.begin()
    second = story.send(other, "b", 0, 0)
    story.commit(other)
    assert story.found() == [(Anomaly.WRITE_CYCLE, [*first, *second])]


def test_concurrent_transactions_in_opposite_orders_are_a_write_cycle_only_where_that_is_forbidden(
    story: Story,
) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    began_one = story.line
    other.begin()
    began_other = story.line
    places = [
        story.send(one, "a", 0, 0),
        story.send(other, "b", 0, 1),
        story.send(other, "c", 1, 0),
        story.send(one, "d", 1, 1),
    ]
    story.commit(one)
    story.commit(other)
    lines = [began_one, began_other, *(acknowledged for _, acknowledged in places)]
    assert story.found(forbid_write_cycles=True) == [(Anomaly.WRITE_CYCLE, lines)]
    assert story.found() == []
    assert check_history(story.lines).permitted_count == 1


def test_transactions_that_read_from_each_other_are_a_read_cycle(story: Story) -> None:
    one, other = story.producer("one"), story.producer("other")
    one.begin()
    other.begin()
    sent_a, _ = story.send(one, "a", 0, 0)
    sent_b, _ = story.send(other, "b", 1, 0)
    read_b = story.poll(one, ("t", 1, 0, "b"))
    read_a = story.poll(other, ("t", 0, 0, "a"))
    story.commit(one)
    story.commit(other)
    assert story.found() == [(Anomaly.READ_CYCLE, [sent_a, sent_b, read_b, read_a])]


def test_the_smallest_of_many_read_cycles_is_shown(story: Story) -> None:
    clients = [story.producer(name) for name in "pqrs"]
    for client in clients:
        client.begin()
        story.send(client, f"of {client.name}", 0, ord(client.name))
    for reader, source in [("q", "p"), ("r", "q"), ("s", "r"), ("p", "s"), ("q", "r")]:
        story.poll(clients["pqrs".index(reader)], ("t", 0, ord(source), f"of {source}"))
        clients["pqrs".index(reader)].seek([("t", 0, None)])
    for client in clients:
        story.commit(client)
    report = check_history(story.lines)
    cycle = next(finding for finding in report.findings if finding.anomaly is Anomaly.READ_CYCLE)
    assert '"q"' in cycle.summary
    assert '"r"' in cycle.summary
    assert "each of 2 transactions" in cycle.summary
