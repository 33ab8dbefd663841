"""`fencepost serve` as a process: its ready line, its exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.cli.commands import COMMANDS, fencepost

ROOT = Path(__file__).resolve().parents[3]
SERVE = [sys.executable, "-m", "fencepost", "serve"]


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")} | variables


def failing(*arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code and standard error of a start that does not succeed."""
    ended = subprocess.run(
        [*SERVE, *arguments],
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running broker and the first line of its standard output."""
    process = subprocess.Popen(
        [*SERVE, *arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_the_ready_line_is_all_that_goes_to_standard_output(tmp_path: Path) -> None:
    with serving("--listener", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")) as (process, ready):
        assert ready.startswith("fencepost is ready: 127.0.0.1:")
        assert f"data in {tmp_path}/data" in ready
        process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=20)
        assert rest == ""
        assert "stopped" in log
        assert process.returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_json_logging_is_json_throughout(tmp_path: Path) -> None:
    arguments = ("--listener", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-format", "json")
    with serving(*arguments, "--set", "zookeeper.connect=localhost") as (process, ready):
        event = json.loads(ready)
        assert event["event"] == "ready"
        assert event["port"] > 0
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=20)
        events = [json.loads(line) for line in log.splitlines()]
        assert [event["event"] for event in events][:1] == ["settings_warning"]
        assert events[-1]["event"] == "stopped"
        assert process.returncode == 0


def test_a_second_broker_on_the_same_data_says_so_and_ends(tmp_path: Path) -> None:
    with serving("--listener", "127.0.0.1:0", "--data-dir", str(tmp_path)):
        code, message = failing("--listener", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert code == 1
    assert "in use by another broker" in message
    assert len(message.splitlines()) == 1


def test_a_port_in_use_says_so_and_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, message = failing("--listener", address, "--data-dir", str(tmp_path))
    assert code == 1
    assert message == (
        f"fencepost: cannot listen on PLAINTEXT://{address}: the port is in use; "
        "stop what uses it, or choose another one with --listener\n"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--set", "num.partition=3"), "did you mean 'num.partitions'?"),
        (
            ("--listener", "nowhere"),
            "--listener: expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; got 'nowhere'",
        ),
        (("--config", "missing.properties"), "cannot be read"),
    ],
)
def test_bad_settings_end_with_code_2_and_a_message(arguments: tuple[str, ...], part: str) -> None:
    code, message = failing(*arguments)
    assert code == 2
    assert message.startswith("fencepost: ")
    assert part in message


def test_a_bad_variable_is_named() -> None:
    code, message = failing(FENCEPOST_NUM_PARTITIONS="none")
    assert code == 2
    assert "FENCEPOST_NUM_PARTITIONS" in message


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_found(name: str) -> None:
    from click import Context

    command = fencepost.get_command(Context(fencepost), name)
    assert command is not None
    assert command.name == name


def test_serving_does_not_import_client_libraries() -> None:
    code = (
        "import sys, fencepost.broker.process.serve; "
        "print([name for name in ('kafka', 'confluent_kafka') if name in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    assert printed.stdout.strip() == "[]"


def test_the_ready_line_names_every_listener_and_its_advertised_address(tmp_path: Path) -> None:
    arguments = ("--listener", "127.0.0.1:0", "--listener", "0.0.0.0:0", "--data-dir", str(tmp_path))
    with serving(*arguments, "--set", "advertised.listeners=PLAINTEXT2://broker.example:19092") as (_, ready):
        ports = re.match(
            r"fencepost is ready: 127\.0\.0\.1:(\d+) and 0\.0\.0\.0:(\d+), "
            r"advertised as 127\.0\.0\.1:(\d+), broker\.example:19092 ",
            ready,
        )
    assert ports is not None, ready
    assert ports[1] == ports[3] != ports[2]


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "fencepost", "serv"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 2
    assert "there is no command 'serv'; did you mean 'serve'?" in ended.stderr
