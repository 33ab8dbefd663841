"""kcat as a process: run to its end, or in the background while a check goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

from tests.compat.python_checks import LIMIT_S, Check, FailedError

# What topics that kcat makes have, by the settings of its broker: it can only ask for a topic, not for its partitions.
PARTITION_COUNT = 3
# librdkafka's defaults, but for the pace at which it comes back.
PACE = ("reconnect.backoff.ms=50", "reconnect.backoff.max.ms=200", "retry.backoff.ms=50")
COMMITTED = "isolation.level=read_committed"
UNCOMMITTED = "isolation.level=read_uncommitted"


@dataclass(frozen=True)
class Outcome:
    """How a kcat ended. code: its exit code, or the negative number of the signal that ended it."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def command(check: Check, *arguments: str, config: Sequence[str] = ()) -> list[str]:
    """The command line of a kcat that talks with the check's broker. config: NAME=VALUE of librdkafka."""
    settings = [word for setting in (*PACE, *config) for word in ("-X", setting)]
    return ["kcat", "-b", check.bootstrap, *settings, *arguments]


def kcat(check: Check, *arguments: str, records: str = "", config: Sequence[str] = ()) -> Outcome:
    """Run kcat to its end, with `records` on its standard input."""
    try:
        ended = subprocess.run(
            command(check, *arguments, config=config),
            input=records.encode(),
            capture_output=True,
            timeout=LIMIT_S / 2,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise FailedError(
            f"kcat {' '.join(arguments)} did not end; it wrote {late.stdout!r}, {late.stderr!r}"
        ) from late
    return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def succeed(check: Check, *arguments: str, records: str = "", config: Sequence[str] = ()) -> str:
    """What a kcat writes that must end well."""
    outcome = kcat(check, *arguments, records=records, config=config)
    check.equal(f"exit code of kcat {' '.join(arguments)} ({outcome.errors.strip()})", outcome.code, 0)
    return outcome.output


def create_topic(check: Check, kind: str = "topic") -> str:
    """A topic of the check's own with PARTITION_COUNT partitions, which the broker makes when it is asked about."""
    topic = check.name(kind)

    def have_leaders() -> list[bool]:
        [described] = metadata(check, "-t", topic)["topics"]
        return [partition["leader"] > 0 for partition in described["partitions"]]

    check.comes_to("partitions with a leader", have_leaders, [True] * PARTITION_COUNT)
    return topic


def metadata(check: Check, *arguments: str) -> Any:
    """The metadata that `kcat -L -J` lists."""
    return json.loads(succeed(check, "-L", "-J", *arguments))


def produce(check: Check, topic: str, values: Sequence[str], partition: int = 0, config: Sequence[str] = ()) -> None:
    records = "".join(f"{value}\n" for value in values)
    succeed(check, "-P", "-t", topic, "-p", str(partition), records=records, config=config)


def read(check: Check, topic: str, *arguments: str, config: Sequence[str] = ()) -> list[str]:
    """The lines that `kcat -C` writes, up to the end of what it reads."""
    return succeed(check, "-C", "-t", topic, "-e", "-q", *arguments, config=config).splitlines()


def read_all(check: Check, topic: str, partition: int = 0, isolation: str = COMMITTED) -> list[str]:
    """The values in a partition, from its start to its end, as this isolation level sees both."""
    return read(check, topic, "-p", str(partition), "-o", "beginning", config=[isolation])


def offset(check: Check, topic: str, partition: int, asked: int) -> int:
    """What `kcat -Q` finds: the offset of the first record at or after a time, or of -1 (latest), -2 (earliest)."""
    line = succeed(check, "-Q", "-t", f"{topic}:{partition}:{asked}").strip()
    found = re.fullmatch(rf"{re.escape(topic)} \[{partition}\] offset (-?\d+)", line)
    if found is None:
        raise FailedError(f"an offset was asked for and kcat wrote {line!r}")
    return int(found[1])


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


class Running:
    """A kcat in the background, and what it has written so far. It ends with the block, if not before."""

    def __init__(self, check: Check, *arguments: str, config: Sequence[str] = ()) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            command(check, *arguments, config=config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._input = self.process.stdin
        self._readers = [
            _reading(self.process.stdout, self.lines.append),
            _reading(self.process.stderr, self._hear),
        ]

    def _hear(self, line: str) -> None:
        self.errors.append(line)

    def write(self, *records: str) -> None:
        for record in records:
            self._input.write(record + "\n")
        self._input.flush()

    def end_of_input(self) -> int:
        """Close its input, which makes a producer finish. Returns its exit code."""
        self._input.close()
        return self.wait()

    def interrupt(self, then: Callable[[], object] = lambda: None) -> int:
        """As Ctrl-C would: it leaves its group, or aborts its transaction. Returns its exit code.

        then: done after the signal was sent, for one that waits for something else.
        """
        self.process.send_signal(signal.SIGINT)
        then()
        return self.wait()

    def kill(self) -> None:
        """End it at once, so that the broker hears nothing of it."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        try:
            code = self.process.wait(LIMIT_S / 2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise FailedError(f"kcat did not end; it wrote {self.lines!r}, {self.errors!r}") from None
        for reader in self._readers:
            reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.wait()


def _reading(stream: IO[str], take: Callable[[str], None]) -> threading.Thread:
    def read_lines() -> None:
        for line in stream:
            take(line.rstrip("\n"))

    thread = threading.Thread(target=read_lines, daemon=True)
    thread.start()
    return thread
