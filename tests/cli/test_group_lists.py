"""`fencepost groups list`: every kind of group with members and lag, many at once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import confluent_kafka as ck
import pytest
from click.testing import CliRunner, Result

from fencepost.cli import group_lists
from fencepost.cli.commands import fencepost as command
from fencepost.cli.group_lists import Listing, Wanted, _explain, _row, read_groups
from fencepost.client.cluster import Cluster
from fencepost.client.options import addresses_of
from fencepost.client.session import ClientOptions
from fencepost.console.reading.groups import GroupLag, ListedGroup
from fencepost.diagnosis.lag import Lag


def run(fencepost: Any, *arguments: str) -> Result:
    options = {"FENCEPOST_BOOTSTRAP": fencepost.bootstrap_servers}
    return CliRunner().invoke(command, ["groups", *arguments], env=options)


def listed(fencepost: Any, *arguments: str) -> list[dict[str, Any]]:
    result = run(fencepost, "list", *arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def write(fencepost: Any, topic: str, count: int, *, commits: bool) -> None:
    producer = ck.Producer({"bootstrap.servers": fencepost.bootstrap_servers, "transactional.id": f"w-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    producer.flush(30)
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_lag_is_records_beside_offsets_and_is_sorted_and_filtered(fencepost: Any) -> None:
    topic = fencepost.topic("lagging")
    for commits in (True, False):
        write(fencepost, topic, 5, commits=commits)
    for group, offset in (("lag-begin", "0"), ("lag-marker", "5"), ("lag-end", "12")):
        assert run(fencepost, "reset-offsets", group, topic, "--to-offset", offset).exit_code == 0
    rows = {row["group"]: (row["lag"], row["read_committed_lag"]) for row in listed(fencepost, "--pattern", "lag-*")}
    assert rows == {"lag-begin": (12, 5), "lag-marker": (7, 0), "lag-end": (0, 0)}
    assert next(row["group"] for row in listed(fencepost, "--pattern", "lag-*", "--sort", "lag")) == "lag-begin"
    assert [row["group"] for row in listed(fencepost, "--pattern", "^lag", "--min-lag", "1")] == ["lag-begin"]
    assert listed(fencepost, "--pattern", "lag-*", "--state", "stable") == []
    assert len(listed(fencepost, "--pattern", "lag-*", "--state", "empty", "--type", "classic")) == 3
    assert "no such groups" in run(fencepost, "list", "--type", "streams").stdout


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_counted(fencepost: Any, protocol: str) -> None:
    topic = fencepost.topic(f"members-{protocol}")
    consumer = ck.Consumer(
        {"bootstrap.servers": fencepost.bootstrap_servers, "group.id": f"with-{protocol}", "group.protocol": protocol}
    )
    consumer.subscribe([topic])
    try:
        deadline_s = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        (row,) = listed(fencepost, "--pattern", f"with-{protocol}")
        assert (row["members"], row["type"], row["protocol_type"]) == (1, protocol, "consumer")
        assert row["read_committed_lag"] == 0
    finally:
        consumer.close()


def test_offsets_of_a_deleted_topic_are_no_fault() -> None:
    lags = [GroupLag("gone", index, 7, Lag.of_nothing("gone"), None, None) for index in range(2)]
    listing = Listing()
    _explain(listing, {"of-gone": lags}, {}, [ListedGroup("of-gone", "classic", "Empty", 1)])
    assert listing == Listing(notes=["Lags are without offsets of 2 partitions that are gone."])


def test_partitions_that_do_not_answer_and_groups_that_were_not_read_are_named() -> None:
    group, silent = ListedGroup("g", "consumer", "Empty", 1, "consumer"), ListedGroup("h", "consumer", "Empty", 2)
    lags = [
        GroupLag("orders", 0, 5, Lag(3, 2, 0), 8, 8),
        GroupLag("orders", 1, 5, Lag.of_nothing("?"), None, None),
        GroupLag("secret", 0, 5, Lag.of_nothing("?"), None, None),
    ]
    reasons = {"orders-1": "there is no leader", "secret": "TOPIC_AUTHORIZATION_FAILED"}
    row = _row(group, lags, 0, reasons)
    assert (row["lag"], row["read_committed_lag"], row["unread_partitions"]) == (3, 2, 2)
    assert _row(silent, None, None, {})["lag"] is None, "no wrong zero"
    assert _row(group, [], 0, {})["lag"] == 0
    listing = Listing()
    _explain(listing, {"g": lags}, reasons, [group, silent])
    assert listing.missing == [
        "The offsets of 1 of 2 groups could not be read: 'h'.",
        "Lags are without 1 partitions that do not answer: orders-1 (there is no leader).",
    ]
    assert listing.notes == ["Lags are without 1 partitions that this user may not describe."]


def test_long_lags_are_not_counted_record_by_record(fencepost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fencepost.topic("long")
    write(fencepost, topic, 5, commits=True)
    for group in ("long-a", "long-b"):
        run(fencepost, "reset-offsets", group, topic, "--to", "earliest")

    async def read() -> list[int]:
        cluster = Cluster(addresses_of(fencepost.bootstrap_servers), ClientOptions())
        try:
            listing = await read_groups(cluster, Wanted(matches=lambda group: group.startswith("long-")))
            return [row["read_committed_lag"] for row in listing.rows]
        finally:
            cluster.close()

    assert asyncio.run(read()) == [5, 5]
    monkeypatch.setattr(group_lists, "MOST_OFFSETS_COUNTED", 5)
    assert asyncio.run(read()) == [6, 6], "the offsets, of which one is a marker's"


def test_states_and_types_choose_groups() -> None:
    assert Wanted(frozenset({"empty"})).has(ListedGroup("g", "share", "Empty", 1))
    assert not Wanted(kinds=frozenset({"classic"})).has(ListedGroup("g", "share", "Empty", 1))
