"""`fencepost consume` reads what it is asked for: partitions, offsets, times, patterns; all of a log with markers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess
from tests.support.stable_offsets import until_stable

Run = Callable[..., Result]
Unique = Callable[[str], str]


@pytest.fixture
def numbers(broker: BrokerProcess, run: Run, unique: Unique) -> str:
    """A topic with the values 0 to 9 in partition 0, of the times 1000 to 1009, and `other` in partition 1."""
    topic = unique("numbers")
    run("topics", "create", topic, "-p", "2", "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=0, timestamp=1000 + number)
    producer.produce(topic, b"other", partition=1, timestamp=5000)
    assert producer.flush(60) == 0
    return topic


def read(run: Run, *arguments: str) -> list[str]:
    shown = run("consume", *arguments)
    assert shown.exit_code == 0, shown.output
    return shown.stdout.split()


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (("-p", "0", "-e"), "0 1 2 3 4 5 6 7 8 9"),
        (("-p", "1", "-e"), "other"),
        (("-p", "0", "-o", "7", "-e"), "7 8 9"),
        (("-p", "0", "-o", "-2", "-e"), "8 9"),
        (("-p", "0", "-o", "beginning", "-n", "2"), "0 1"),
        (("-p", "0", "-o", "99", "-e"), ""),
        (("-p", "0", "-o", "end", "-e"), ""),
        (("-p", "0", "--from-time", "1004", "--to-time", "1007"), "4 5 6"),
        (("--from-time", "1008", "-e"), "8 9 other"),
        (("-p", "0", "--to-time", "1001"), "0"),
        (("--from-time", "1970-01-01T00:00:05+00:00", "-e"), "other"),
    ],
)
def test_a_part_of_a_topic_is_read(run: Run, numbers: str, options: tuple[str, ...], values: str) -> None:
    assert sorted(read(run, numbers, *options)) == values.split()


def test_several_topics_and_a_pattern_are_read(run: Run, unique: Unique) -> None:
    first, second = unique("many"), unique("many")
    for topic in (first, second):
        run("produce", topic, input=f"{topic}\n")
    assert sorted(read(run, first, second, "-e")) == sorted([first, second])
    assert sorted(read(run, f"^({first}|{second})$", "-e")) == sorted([first, second])
    nothing = run("consume", "^nothing-like-this", "-e")
    assert nothing.exit_code == 1
    assert "no topic matches '^nothing-like-this'" in nothing.stderr


def test_the_format_is_that_of_kcat(run: Run, unique: Unique) -> None:
    topic = unique("format")
    run("produce", topic, "--key-separator", ":", "--header", "a=b", "-p", "0", input="k:v\n")
    assert run("consume", topic, "-e", "-f", r"%t %p %o %k %s %h\n").stdout == f"{topic} 0 0 k v a=b\n"


def test_the_end_is_reached_although_the_last_records_are_aborted(run: Run, unique: Unique) -> None:
    topic = unique("aborted")
    run("topics", "create", topic, "-p", "1")
    run("produce", topic, input="kept\n")
    run("produce", topic, "--transactional-id", unique("till"), "--abort", input="1\n2\n")
    assert read(run, topic, "-e") == ["kept"]


def test_markers_show_how_each_record_stands(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    topic, till = unique("marked"), unique("till")
    run("topics", "create", topic, "-p", "1")
    run("produce", topic, input="plain\n")
    run("produce", topic, "--transactional-id", till, input="good\n")
    run("produce", topic, "--transactional-id", till, "--abort", input="bad\n")
    until_stable({"bootstrap.servers": broker.bootstrap}, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("open")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"pending", partition=0)
    producer.flush(60)
    rows: list[Any] = [json.loads(line) for line in run("consume", topic, "--markers", "--json").stdout.splitlines()]
    assert [(row["offset"], row["mark"], row["value"], row.get("outcome")) for row in rows] == [
        (0, "plain", "plain", None),
        (1, "committed", "good", None),
        (2, "marker", None, "commit"),
        (3, "aborted", "bad", None),
        (4, "marker", None, "abort"),
        (5, "open", "pending", None),
    ]
    lines = run("consume", topic, "--markers", "-o", "3", "-n", "2").stdout.splitlines()
    pair = f"{rows[3]['producer_id']}:{rows[3]['producer_epoch']}"
    assert lines[0] == f"{topic}-0 @3 aborted of producer {pair}: null: bad"
    assert lines[1].startswith(f"{topic}-0 @4 marker: abort of producer {rows[4]['producer_id']}:")
    producer.abort_transaction(60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--group", "g", "-p", "0"), "a group decides itself what its members read"),
        (("--from-beginning", "-o", "3"), "say once where to begin"),
        (("--format", "%s", "--json"), "--format says all"),
        (("--format", "%q"), "%q is not known; known are %t topic"),
        (("-o", "soon"), "'soon' is no offset: write beginning, end, a number"),
        (("--from-time", "soon"), "'soon' is no time: write 2026-01-31T14:02:00"),
        (("--markers", "--group", "g"), "--markers goes with neither"),
        (("-p", "9", "-e"), "has no partition 9; it has 2"),
        (("-p", "9", "--markers"), "has no partition 9; it has 2"),
    ],
)
def test_what_contradicts_itself_is_refused(run: Run, numbers: str, options: tuple[str, ...], message: str) -> None:
    result = run("consume", numbers, *options)
    assert result.exit_code == (1 if "9" in options else 2)
    assert message in result.stderr
