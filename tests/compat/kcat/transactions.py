"""Transactions: all that one kcat writes, or nothing of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.compat.kcat.tool import (
    COMMITTED,
    UNCOMMITTED,
    Running,
    create_topic,
    kcat,
    numbers,
    offset,
    produce,
    read_all,
    succeed,
)
from tests.compat.python_checks import Check

# kcat reads its input a kilobyte at a time: what is shorter stays in its buffer.
PADDING = "x" * 2_000


def transactional(check: Check, **more: str) -> list[str]:
    settings = {"transactional.id": check.name("transaction"), **more}
    return [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]


class Writer(Running):
    """A kcat that keeps its transaction open for as long as its input is."""

    def __init__(self, check: Check, topic: str, **more: str) -> None:
        super().__init__(check, "-P", "-E", "-t", topic, "-p", "0", config=transactional(check, **more))

    def write_padded(self, *numbers: str) -> None:
        """Records for `numbers_in`. The last one stays in kcat until there is more input, or its end."""
        self.write(*[number + PADDING for number in numbers])


def numbers_in(check: Check, topic: str, isolation: str = COMMITTED) -> list[str]:
    """The records of partition 0, without padding."""
    return [value.removesuffix(PADDING) for value in read_all(check, topic, 0, isolation)]


def transaction_commit(check: Check) -> None:
    topic = create_topic(check)
    for start in range(0, 50, 10):
        records = "\n".join(numbers(start, start + 10))
        ended = kcat(check, "-P", "-t", topic, "-p", "0", records=records, config=transactional(check))
        said = ["% Using transactional producer", "% Committing transaction", "% Transaction successfully committed"]
        # Lines of librdkafka, which tell of a call that it made again, begin otherwise.
        heard = [line for line in ended.errors.splitlines() if line.startswith("% ")]
        check.equal("what it says", (ended.code, heard), (0, said))
    for isolation in (COMMITTED, UNCOMMITTED):
        check.equal(f"records ({isolation})", read_all(check, topic, 0, isolation), numbers(0, 50))
    check.equal("a marker for each transaction", offset(check, topic, 0, -1), 55)


def transaction_abort(check: Check) -> None:
    topic = create_topic(check)
    with tempfile.TemporaryDirectory() as folder:
        first, second, later = (str(Path(folder, name)) for name in ("first", "second", "later"))
        Path(first).write_text("first")
        Path(second).write_text("second")
        # kcat waits for this file, and aborts its transaction when it is interrupted meanwhile.
        os.mkfifo(later)
        arguments = ("-P", "-t", topic, "-p", "0", first, second, later)
        with Running(check, *arguments, config=transactional(check)) as writer:
            check.comes_to("written", lambda: read_all(check, topic, 0, UNCOMMITTED), ["first", "second"])
            check.equal("committed", read_all(check, topic), [])
            writer.interrupt(then=lambda: Path(later).write_text(""))
            check.equal("what it says", writer.errors[-1], "% Aborting transaction due to termination signal")
    produce(check, topic, ["after"])
    check.equal("committed", read_all(check, topic), ["after"])
    check.equal("all", read_all(check, topic, 0, UNCOMMITTED), ["first", "second", "after"])
    check.equal("a marker", offset(check, topic, 0, -1), 4)


def transaction_isolation(check: Check) -> None:
    topic = create_topic(check)
    produce(check, topic, ["before"])

    def end(isolation: str) -> str:
        return succeed(check, "-Q", "-t", f"{topic}:0:-1", config=[isolation]).strip()

    with Writer(check, topic) as writer:
        writer.write_padded("within", "last")
        check.comes_to("written", lambda: numbers_in(check, topic, UNCOMMITTED), ["before", "within"])
        produce(check, topic, ["after"])
        check.equal("committed while open", numbers_in(check, topic), ["before"])
        check.equal("all while open", numbers_in(check, topic, UNCOMMITTED), ["before", "within", "after"])
        check.equal("end for readers of what is committed", end(COMMITTED), f"{topic} [0] offset 1")
        check.equal("end for the others", end(UNCOMMITTED), f"{topic} [0] offset 3")
        check.equal("exit code", writer.end_of_input(), 0)
    check.equal("once it is committed", numbers_in(check, topic), ["before", "within", "after", "last"])
    check.equal("end", end(COMMITTED), f"{topic} [0] offset 5")


def transaction_fencing(check: Check) -> None:
    topic = create_topic(check)
    with Writer(check, topic) as first:
        first.write_padded("first", "lost")
        check.comes_to("written", lambda: numbers_in(check, topic, UNCOMMITTED), ["first"])
        succeed(check, "-P", "-t", topic, "-p", "0", records="second", config=transactional(check))
        check.equal("exit code of the fenced one", first.end_of_input(), 1)
        check.equal("its error", any("fenced" in line for line in first.errors), True)
    check.equal("committed", numbers_in(check, topic), ["second"])
    check.equal("all", numbers_in(check, topic, UNCOMMITTED), ["first", "second"])


def transaction_zombie(check: Check) -> None:
    """Of one that is gone, the broker aborts the transaction when its time is over."""
    topic = create_topic(check)
    with Writer(check, topic, transaction_timeout_ms="2000") as zombie:
        zombie.write_padded("left behind", "lost")
        check.comes_to("written", lambda: numbers_in(check, topic, UNCOMMITTED), ["left behind"])
        zombie.kill()
    produce(check, topic, ["after"])
    check.comes_to("the broker aborts it", lambda: numbers_in(check, topic), ["after"])
    check.equal("all", numbers_in(check, topic, UNCOMMITTED), ["left behind", "after"])
    check.equal("a marker", offset(check, topic, 0, -1), 3)
