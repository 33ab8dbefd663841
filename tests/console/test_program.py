"""`fencepost console` as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fencepost.console import program
from tests.support.certificates import Authority

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


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A console on a port of its own, and its address."""
    command = [sys.executable, "-c", COMMAND, "console", "--listen", "127.0.0.1:0", *arguments]
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, stdout=output)
    try:
        deadline_s = time.monotonic() + 60
        while (ready := re.fullmatch(r"console ready: (https?://127\.0\.0\.1:\d+)/\n", log.read_text())) is None:
            assert time.monotonic() < deadline_s, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield process, ready[1]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_ends_without_a_word(tmp_path: Path, ending: signal.Signals) -> None:
    log = tmp_path / "log"
    with started(log, "--bootstrap", "127.0.0.1:1", "--audit-log", str(tmp_path / "audit")) as (process, address):
        assert httpx.get(address, timeout=60).status_code == 502
        process.send_signal(ending)
        assert process.wait(60) == 0
        assert log.read_text().splitlines() == [f"console ready: {address}/"]


@pytest.mark.parametrize(
    "endings", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)]
)
def test_it_ends_in_order_however_often_it_is_asked_to_while_a_page_waits(
    tmp_path: Path, endings: tuple[signal.Signals, ...]
) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        with started(log, "--bootstrap", bootstrap) as (process, address), ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(httpx.get, f"{address}/topics", timeout=60)
            silent.settimeout(60)
            with silent.accept()[0]:
                for ending in endings:
                    process.send_signal(ending)
                    time.sleep(0.2)
                assert process.wait(60) == 0
            assert waiting.exception(60) is not None or waiting.result().status_code >= 500
    assert "Traceback" not in log.read_text()


def test_it_serves_https_with_secure_cookies_and_gives_no_answer_to_plain_http(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    issued = authority.server(names=("127.0.0.1", "console.example"))
    log = tmp_path / "log"
    tls = ("--tls-certificate", str(issued.certificate), "--tls-key", str(issued.key), "--name", "console.example")
    with started(log, "--bootstrap", "127.0.0.1:1", *tls) as (process, address):
        assert address.startswith("https://")
        with httpx.Client(verify=authority.context(), timeout=60) as browser:
            answer = browser.get(address)
            assert "Secure" in answer.headers["set-cookie"]
            assert "strict-transport-security" not in answer.headers
            answer = browser.get(address, headers={"Host": "console.example"})
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            with pytest.raises(httpx.HTTPError):
                httpx.get(address.replace("https", "http"), timeout=60)
            assert browser.get(address).status_code == 502
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert log.read_text().splitlines() == [f"console ready: {address}/"]


def test_a_key_without_its_certificate_and_a_certificate_without_its_key_are_refused(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    code, said = run("--tls-key", str(issued.key))
    assert (code, said) == (1, "Error: --tls-key and its password count only with --tls-certificate\n")
    code, said = run("--tls-certificate", str(issued.certificate))
    assert code == 1
    assert said == f"Error: {issued.certificate} cannot be used: a certificate, or its key, is not there in PEM\n"


async def test_the_certificate_is_looked_at_again_and_again_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    says = iter([None, "it was read again", ZeroDivisionError()])
    ended = asyncio.Event()

    class Tls:
        def reload(self) -> str | None:
            said = next(says, "")
            if isinstance(said, Exception):
                raise said
            if said == "":
                loop.call_soon_threadsafe(ended.set)
                return None
            return said

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(program, "RELOAD_S", 0.001)
    task = asyncio.create_task(program._renew(Tls()))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        await ended.wait()
    task.cancel()
    assert [one.message for one in caplog.records] == ["it was read again", "the certificate cannot be read again"]
