"""Tries a `fencepost` as a user does: a broker serves, a record is written to a topic and read, SIGTERM ends it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

PATIENCE_S = 60.0
READY = re.compile(r"ready: (\S+:\d+)")
RECORD = "3 apples"


class TrialError(Exception):
    """A release's program does not do its work."""


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel and the newest versions that it takes into an empty environment; returns the command."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip: list[str | Path] = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    subprocess.run(pip, check=True)
    return folder / "bin" / "fencepost"


def attempt(command: Path, version: str, environment: Mapping[str, str]) -> None:
    """Raises TrialError."""

    def run(*arguments: str, given: str | None = None) -> str:
        done = subprocess.run(
            [command, *arguments],
            input=given,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            raise TrialError(f"{command.name} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    shown = run("--version").split()[-1]
    if shown != version:
        raise TrialError(f"{command.name} --version says {shown}, not {version}")
    with tempfile.TemporaryDirectory() as data:
        serve: list[str | Path] = [command, "serve", "--listener", "127.0.0.1:0", "--data-dir", data]
        process = subprocess.Popen(
            serve, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        late = threading.Timer(PATIENCE_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            broker = ("--bootstrap", _address(process.stdout))
            run("topics", "create", "orders", *broker)
            run("produce", "orders", *broker, given=f"{RECORD}\n")
            read = run("consume", "orders", "--from-beginning", "-e", *broker)
            if read != f"{RECORD}\n":
                raise TrialError(f"{command.name} consume printed {read!r}")
            process.terminate()
            process.stdout.read()
            if process.wait(PATIENCE_S) != 0:
                raise TrialError(f"{command.name} serve ended with {process.returncode} after SIGTERM")
        finally:
            late.cancel()
            process.kill()
            process.wait()


def _address(output: IO[str]) -> str:
    seen = ""
    for line in output:
        seen += line
        if found := READY.search(line):
            return found[1]
    raise TrialError(f"the broker ended before it was ready:\n{seen}")
