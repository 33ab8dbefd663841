"""`fencepost console` as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

COMMAND = "from fencepost.cli.main import main; main()"
WITHOUT = f"import sys; sys.modules['uvicorn'] = None; {COMMAND}"


def run(*arguments: str, program: str = COMMAND) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program, "console", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


def test_a_missing_library_is_named_with_what_to_install() -> None:
    said = "the console needs uvicorn, which is not installed: pip install 'fencepost[console]'\n"
    assert run(program=WITHOUT) == (2, said)
    done = subprocess.run([sys.executable, "-c", WITHOUT, "console", "--help"], check=False, timeout=60)
    assert done.returncode == 0


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = run("--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert said.startswith(f"Error: the console cannot listen on 127.0.0.1:{port}: address already in use")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "8080"), "expected HOST:PORT"),
        (("--listen", "no-such-host.invalid:0"), "there is no such address here"),
        (("-X", "security.protocol=TLS"), "expected PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    code, error = run(*arguments)
    assert code == 1
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_ends_without_a_word(tmp_path: Path, ending: signal.Signals) -> None:
    log = tmp_path / "log"
    arguments = [
        "console",
        "--bootstrap",
        "127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
        "--audit-log",
        str(tmp_path / "audit"),
    ]
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=output, stdout=output)
    try:
        deadline_s = time.monotonic() + 60
        while (ready := re.fullmatch(r"console ready: (http://127\.0\.0\.1:\d+/)\n", log.read_text())) is None:
            assert time.monotonic() < deadline_s, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        assert httpx.get(ready[1], timeout=60).status_code == 502
        process.send_signal(ending)
        process.wait(60)
        assert log.read_text().rstrip() == ready[0].rstrip()
    finally:
        process.kill()
        process.wait()
