"""How commands end: Ctrl-C, SIGTERM and a reader that is gone leave no traceback, and the exit code of the page."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from fencepost.cli.exit_codes import DONE, INTERRUPTED, NOT_DONE, OUTPUT_CLOSED, TERMINATED
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.conditions import until

Run = Callable[..., Result]
TIMEOUT_S = 60
FENCEPOST = [sys.executable, "-m", "fencepost"]
TOPIC = "ends"


@pytest.fixture(autouse=True)
def _records(run: Run) -> None:
    """A topic with two records, and a group."""
    assert run("topics", "create", TOPIC, "--if-missing").exit_code == 0
    assert run("produce", TOPIC, input="one\ntwo\n").exit_code == 0
    assert run("groups", "reset-offsets", "ends", TOPIC, "--to", "earliest").exit_code == 0


@contextmanager
def running(broker: BrokerProcess, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, with pipes to its streams."""
    process = subprocess.Popen(
        [*FENCEPOST, *arguments],
        cwd=ROOT,
        env=os.environ | {"FENCEPOST_BOOTSTRAP": broker.bootstrap},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """The exit code and the errors of a process after a signal."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in errors
    return process.returncode, errors.strip()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
@pytest.mark.parametrize("options", [(), ("--json",), ("--group", "ends-of-consume")], ids=str)
def test_consume_says_how_many_records_it_has_read(
    broker: BrokerProcess, number: signal.Signals, code: int, options: tuple[str, ...]
) -> None:
    with running(broker, "consume", TOPIC, "--from-beginning", "-n", "1000000", *options) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found, errors = ended(process, number)
    assert found == code
    assert errors.endswith("records read")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_produce_says_how_many_records_it_has_written(
    broker: BrokerProcess, run: Run, number: signal.Signals, code: int
) -> None:
    topic = f"ends-of-produce-{number.name.lower()}"
    run("topics", "create", topic)
    with running(broker, "produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write("a line\n")
        process.stdin.flush()
        until(lambda: "a line" in run("consume", topic, "--from-beginning", "-e").stdout)
        assert ended(process, number) == (code, "1 record written")


@pytest.mark.parametrize("options", [(), ("--json",)], ids=str)
def test_watching_ends_without_a_word(broker: BrokerProcess, options: tuple[str, ...]) -> None:
    with running(broker, "groups", "describe", "ends", "--watch", *options) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert ended(process, signal.SIGINT) == (INTERRUPTED, "")


def test_waiting_for_a_broker_ends_without_a_word(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with running(broker, "ping", "--wait-seconds", "600", "--bootstrap", address) as process:
            connection, _ = server.accept()
            with connection:
                assert ended(process, signal.SIGINT) == (INTERRUPTED, "")


def test_measuring_ends_without_a_word(broker: BrokerProcess, run: Run) -> None:
    with running(broker, "bench", "--records", "100000000") as process:
        until(lambda: "bench" in run("topics", "list").stdout)
        assert ended(process, signal.SIGINT) == (INTERRUPTED, "")


def test_a_question_ends_without_a_word_and_changes_nothing(broker: BrokerProcess, run: Run) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [*FENCEPOST, "topics", "delete", TOPIC],
        cwd=ROOT,
        env=os.environ | {"FENCEPOST_BOOTSTRAP": broker.bootstrap},
        stdin=its_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(its_end)
    try:
        assert process.stderr is not None
        asked = ""
        while not asked.endswith("[y/N]: "):
            asked += process.stderr.read(1) or pytest.fail(f"it did not ask, but said {asked!r}")
        assert ended(process, signal.SIGINT) == (INTERRUPTED, "")
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        os.close(terminal)
    assert TOPIC in run("topics", "list").stdout.split()


def test_reading_a_history_ends_without_a_word(broker: BrokerProcess, tmp_path: Path) -> None:
    pipe = tmp_path / "history"
    os.mkfifo(pipe)
    with running(broker, "history", "check", str(pipe)) as process, pipe.open("w"):  # opened when both are there
        assert ended(process, signal.SIGINT) == (INTERRUPTED, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "service",
    [
        ("serve", "--listener", "127.0.0.1:0", "--data-dir", "DIRECTORY"),
        ("console", "--listen", "127.0.0.1:0"),
        ("test-broker",),
    ],
    ids=lambda service: service[0],
)
def test_the_end_of_a_service_is_no_failure(
    broker: BrokerProcess, tmp_path: Path, service: tuple[str, ...], number: signal.Signals
) -> None:
    words = [str(tmp_path / "data") if word == "DIRECTORY" else word for word in service]
    with running(broker, *words) as process:
        ready = process.stderr if service[0] == "console" else process.stdout
        assert ready is not None
        assert "ready" in ready.readline()
        code, _ = ended(process, number)
    assert code == DONE


LISTINGS = [
    "topics list",
    f"topics describe {TOPIC}",
    "groups describe ends",
    "groups describe ends --watch",
    "transactions list",
    "cluster info",
    "cluster partitions",
    "configs broker 1 --all",
    "apis",
    f"consume {TOPIC} --from-beginning",
    f"consume {TOPIC} --from-beginning --json",
    f"consume {TOPIC} --markers",
]


@pytest.mark.parametrize("line", LISTINGS)
def test_a_listing_whose_reader_is_gone_ends_without_a_word(broker: BrokerProcess, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*FENCEPOST, *line.split()],
        cwd=ROOT,
        env=os.environ | {"FENCEPOST_BOOTSTRAP": broker.bootstrap},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (OUTPUT_CLOSED, "")


def test_head_gets_its_line_and_nothing_else_is_said(broker: BrokerProcess) -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", *FENCEPOST, "configs", "broker", "1", "--all"],
        cwd=ROOT,
        env=os.environ | {"FENCEPOST_BOOTSTRAP": broker.bootstrap},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.stdout.split()[:2] == ["name", "value"]
    assert done.stderr == ""
    assert done.returncode in (DONE, OUTPUT_CLOSED)


def test_what_is_not_there_is_not_done(run: Run) -> None:
    for line in ("topics describe no-such-topic", "groups describe no-such-group", "transactions describe no-such-id"):
        result = run(*line.split())
        assert result.exit_code == NOT_DONE
        assert result.stderr.startswith("Error: there is no ")
