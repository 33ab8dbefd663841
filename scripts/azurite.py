"""Installs Azurite, the emulator of Azure Blob Storage by its maker, into .cache/azurite, for tests.

It comes from the registry of npm, with the npm on PATH. Never needed by ./scripts/demo.

    scripts/azurite.py fetch
"""

from __future__ import annotations

import argparse
import base64
import email.utils
import fcntl
import hashlib
import hmac
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fencepost.soak.free_port import free_port

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "azurite"
VERSION = "3.35.0"
PROGRAM = CACHE / VERSION / "node_modules" / ".bin" / "azurite-blob"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Every Azurite has this account and key, which its manual names."""
API_VERSION = "2021-08-06"
START_TIMEOUT_S = 60.0


class AzuriteUnavailableError(RuntimeError):
    """Azurite could not be installed or did not start; the message has the reason."""


def fetch() -> Path:
    """Return the path of the program, after installing it if it is missing. Others that want it meanwhile wait."""
    if PROGRAM.exists():
        return PROGRAM
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PROGRAM.exists():
            _install()
    return PROGRAM


def _install() -> None:
    if shutil.which("npm") is None:
        raise AzuriteUnavailableError("Azurite is installed by npm, and no npm is on PATH")
    coming = CACHE / f"{VERSION}.coming"
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir()
    (coming / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--no-audit", "--no-fund", f"azurite@{VERSION}"]
    finished = subprocess.run(command, cwd=coming, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise AzuriteUnavailableError(f"npm failed:\n{finished.stdout}{finished.stderr}"[-4000:])
    coming.rename(CACHE / VERSION)


@dataclass
class Azurite:
    """A server on loopback; a context manager."""

    data_directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def start(self) -> None:
        """Start it on its data; returns once it answers."""
        command = [str(fetch()), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        command += ["--location", str(self.data_directory), "--blobPort", str(self.port)]
        self.data_directory.mkdir(parents=True, exist_ok=True)
        with (self.data_directory / "azurite.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.data_directory)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise AzuriteUnavailableError(f"Azurite did not start; see {self.data_directory / 'azurite.log'}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            self.make_container("answers")
        except OSError:
            return False
        return True

    def make_container(self, name: str) -> None:
        """Create a container, unless there is one. Raises OSError."""
        date = email.utils.formatdate(usegmt=True)
        signed = f"x-ms-date:{date}\nx-ms-version:{API_VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.digest(base64.b64decode(KEY), ("PUT" + "\n" * 12 + signed).encode(), hashlib.sha256)
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": API_VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
                "Content-Length": "0",
            },
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            if "ContainerAlreadyExists" not in error.read().decode():
                raise

    def kill(self) -> None:
        """kill -9. `start` starts it again on its data."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_subparsers(dest="command", required=True).add_parser("fetch", help="install the program, print its path")
    parser.parse_args(arguments)
    try:
        print(fetch())
    except AzuriteUnavailableError as failure:
        print(f"azurite: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
