"""Dead letters are delivered again once each, whenever the command is killed, and if it runs twice at the same time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from click.testing import Result

from fencepost.cli import redelivery
from fencepost.cli.redelivery import Redelivery
from tests.support.broker_process import ROOT, BrokerProcess

pytestmark = pytest.mark.integration

Run = Callable[..., Result]
Unique = Callable[[str], str]


class Letters:
    """A group with a dead-letter topic of two partitions, and a topic of two partitions from which its records came."""

    def __init__(self, run: Run, broker: BrokerProcess, unique: Unique) -> None:
        self.group, self.dead, self.source = unique("sharers"), f"dlq.{unique('letters')}", unique("orders")
        self._run = run
        self.bootstrap = broker.bootstrap
        run("topics", "create", self.dead, "--partitions", "2")
        run("topics", "create", self.source, "--partitions", "2")
        run("configs", "group", self.group, "--set", f"errors.deadletterqueue.topic.name={self.dead}")
        self._producer = ck.Producer({"bootstrap.servers": broker.bootstrap})

    def write(self, count: int, *, group: str | None = None, **content: Any) -> None:
        for number in range(count):
            place = {"topic": self.source, "partition": str(number % 2), "offset": str(number)}
            headers = {**place, "group": group or self.group, "delivery.count": "5", "message": "why"}
            self._producer.produce(
                self.dead,
                **{"key": b"k%d" % number, "value": b"v%d" % number, **content},
                partition=number % 2,
                headers=[("trace", b"x"), *((f"__dlq.errors.{name}", text) for name, text in headers.items())],
            )
        assert self._producer.flush(60) == 0

    def redeliver(self, *options: str) -> Result:
        return self._run("groups", "redeliver", self.group, "--yes", "--json", *options)

    def shown(self, *options: str) -> list[Any]:
        found: list[Any] = json.loads(self._run("groups", "dead-letters", self.group, "--json", *options).stdout)
        return found

    def delivered(self) -> list[Any]:
        """All records of the source, committed or not."""
        consumer = ck.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "x", "isolation.level": "read_uncommitted"}
        )
        found: list[Any] = []
        try:
            places = [ck.TopicPartition(self.source, number, 0) for number in (0, 1)]
            count = sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
            consumer.assign(places)
            while len(found) < count:
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                found.append(message)
        finally:
            consumer.close()
        return found

    def values(self) -> Counter[bytes]:
        return Counter(message.value() for message in self.delivered())


@pytest.fixture
def letters(run: Run, broker: BrokerProcess, unique: Unique) -> Letters:
    return Letters(run, broker, unique)


def once(count: int) -> Counter[bytes]:
    return Counter(b"v%d" % number for number in range(count))


def test_each_is_written_where_it_came_from_as_it_was(letters: Letters) -> None:
    letters.write(4)
    letters.write(2, group="others")
    assert letters.delivered() == []
    assert len(json.loads(letters.redeliver("--dry-run").stdout)) == 4
    assert letters.delivered() == []
    done = json.loads(letters.redeliver().stdout)
    assert done["redelivered"] == 4
    assert done["partitions"] == [{"topic": letters.source, "partition": number, "records": 2} for number in (0, 1)]
    assert sorted(
        (message.partition(), message.key(), message.value(), tuple(message.headers()))
        for message in letters.delivered()
    ) == [(number % 2, b"k%d" % number, b"v%d" % number, (("trace", b"x"),)) for number in (0, 2, 1, 3)]
    again = letters.redeliver()
    assert again.exit_code == 1
    assert "nothing to deliver" in again.stderr
    assert [row["redelivered"] for row in letters.shown()] == [True] * 4
    letters.write(1)
    assert json.loads(letters.redeliver().stdout)["redelivered"] == 1


def test_chosen_ones_are_delivered_and_the_others_later(letters: Letters) -> None:
    letters.write(6)
    assert json.loads(letters.redeliver("--offsets", "1-2", "--offsets", "4").stdout)["redelivered"] == 3
    assert letters.values() == Counter([b"v1", b"v2", b"v4"])
    assert json.loads(letters.redeliver("--from-partition", "1", "-n", "1").stdout)["redelivered"] == 1
    assert json.loads(letters.redeliver("--from-topic", letters.source).stdout)["redelivered"] == 2
    assert letters.values() == once(6)


def test_without_an_answer_nothing_is_written(run: Run, letters: Letters) -> None:
    letters.write(1)
    refused = run("groups", "redeliver", letters.group)
    assert refused.exit_code == 2
    assert "writes 1 dead letters" in refused.output
    assert letters.delivered() == []


def test_one_without_content_takes_it_from_its_original_if_that_is_there(run: Run, letters: Letters) -> None:
    assert run("produce", letters.source, "--partition", "0", input="original\n").exit_code == 0
    letters.write(2, key=None, value=None)
    done = json.loads(letters.redeliver().stdout)
    assert (done["redelivered"], done["without_original"]) == (1, 1)
    assert letters.values() == Counter({b"original": 2})


def test_a_topic_that_is_gone_is_named(run: Run, letters: Letters) -> None:
    letters.write(1)
    assert run("topics", "delete", letters.source, "--yes").exit_code == 0
    refused = letters.redeliver()
    assert refused.exit_code == 1
    assert letters.source in refused.stderr


class Killed(BaseException):
    """The command ends here."""


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", [0, 2])
@pytest.mark.parametrize("step", ["_store", "_write"])
def test_a_command_that_is_run_again_after_a_kill_repeats_nothing(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, step: str, call: int, is_after: bool
) -> None:
    letters.write(8)
    original = getattr(Redelivery, step)
    calls = 0

    def killed(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call + 1 and not is_after:
            raise Killed
        original(*arguments)
        if calls == call + 1:
            raise Killed

    monkeypatch.setattr(redelivery, "MOST_RECORDS", 2)
    with monkeypatch.context() as patched:
        patched.setattr(Redelivery, step, killed)
        with pytest.raises(Killed):
            letters.redeliver()
    assert letters.redeliver().exit_code == 0
    assert letters.values() == once(8)
    assert all(row["redelivered"] for row in letters.shown())


def test_of_two_commands_at_once_the_later_one_continues(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.write(8)
    monkeypatch.setattr(redelivery, "MOST_RECORDS", 2)
    original = Redelivery._write
    others: list[Result] = []

    def with_another(*arguments: Any) -> None:
        if not others:
            monkeypatch.setattr(Redelivery, "_write", original)
            others.append(letters.redeliver())
        original(*arguments)

    monkeypatch.setattr(Redelivery, "_write", with_another)
    first = letters.redeliver()
    assert first.exit_code == 1
    assert "another command" in first.stderr
    assert others[0].exit_code == 0
    assert letters.values() == once(8)


def test_an_old_batch_is_looked_for_before_it_is_written(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.write(4)
    original = Redelivery._write

    def killed(*arguments: Any) -> None:
        original(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Redelivery, "_write", killed)
        with pytest.raises(Killed):
            letters.redeliver()
    monkeypatch.setattr(redelivery, "OLD_MS", -1)
    done = json.loads(letters.redeliver().stdout)
    assert (done["redelivered"], done["continued"]) == (2, 2)
    assert letters.values() == once(4)


@pytest.mark.timeout(300)
def test_a_process_that_is_killed_at_any_time_is_run_again(letters: Letters) -> None:
    count = 60
    letters.write(count)
    program = (
        "import sys; from fencepost.cli import redelivery; redelivery.MOST_RECORDS = 1; "
        "from fencepost.cli.commands import fencepost; fencepost()"
    )
    command = [sys.executable, "-c", program, "groups", "redeliver", letters.group, "--yes"]
    for attempt in range(12):
        with subprocess.Popen(
            [*command, "--bootstrap", letters.bootstrap], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            seen = len(letters.delivered())
            while process.poll() is None and attempt < 3 and len(letters.delivered()) < seen + 5:
                time.sleep(0.01)
            if attempt < 3:
                process.send_signal(signal.SIGKILL)
            _, errors = process.communicate(timeout=120)
        if process.returncode == 0 or b"nothing to deliver" in errors:
            break
    assert letters.values() == once(count)
