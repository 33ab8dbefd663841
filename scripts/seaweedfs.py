"""Builds SeaweedFS, an S3-compatible store, into .cache/seaweedfs, for tests against a server in real use.

Its module comes through Go's proxy and is built with the Go on PATH: some 5 minutes on two cores, once.
Never needed by ./scripts/demo.

    scripts/seaweedfs.py fetch
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
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
CACHE = ROOT / ".cache" / "seaweedfs"
MODULE = "github.com/seaweedfs/seaweedfs"
VERSION = "v0.0.0-20261109003541-7506e5f91cd6"
PROGRAM = CACHE / VERSION / "weed"
START_TIMEOUT_S = 60.0


class SeaweedUnavailableError(RuntimeError):
    """SeaweedFS could not be built or did not start; the message has the reason."""


def fetch() -> Path:
    """Return the path of the program, after building it if it is missing. Others that want it meanwhile wait."""
    if PROGRAM.exists():
        return PROGRAM
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PROGRAM.exists():
            _build()
    return PROGRAM


def _build() -> None:
    if shutil.which("go") is None:
        raise SeaweedUnavailableError("SeaweedFS is built with Go, and no go is on PATH")
    with tempfile.TemporaryDirectory() as directory:
        found = json.loads(_go(directory, "mod", "download", "-json", f"{MODULE}@{VERSION}"))
        # Its go.mod replaces modules, so it is built as the main module, in a copy that Go may write.
        source = Path(directory) / "source"
        shutil.copytree(found["Dir"], source, copy_function=shutil.copyfile)
        built = PROGRAM.with_name("weed.coming")
        _go(str(source), "build", "-o", str(built), "./weed")
        built.rename(PROGRAM)


def _go(directory: str, *arguments: str) -> str:
    finished = subprocess.run(["go", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SeaweedUnavailableError(f"go {arguments[0]} failed:\n{finished.stdout}{finished.stderr}"[-4000:])
    return finished.stdout


@dataclass
class SeaweedFS:
    """A server with one volume store, on loopback, that asks for no keys; a context manager."""

    data_directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _ports: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        # All by name: its own choices, 10,000 above others, are among the ports of outgoing connections.
        names = ("master.port", "volume.port", "filer.port")
        self._ports = {"s3.port": self.port} | {name: free_port() for name in names}
        self._ports |= {f"{name}.grpc": free_port() for name in self._ports}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it on its data; returns once it answers."""
        program = fetch()
        self.data_directory.mkdir(parents=True, exist_ok=True)
        command = [
            *(str(program), "server", f"-dir={self.data_directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-{name}={port}" for name, port in self._ports.items()),
            *("-filer", "-s3", "-master.volumeSizeLimitMB=64", "-volume.max=100"),
        ]
        # It would ask for the keys that it finds in its environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with (self.data_directory / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.data_directory, env=environment)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise SeaweedUnavailableError(f"SeaweedFS did not start; see {self.data_directory / 'weed.log'}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            self.ask("PUT", "answers")
            self.ask("PUT", "answers/one", "one")  # its volumes come later than its interface
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> bytes:
        """Send a request of S3's API without a signature, such as for a new bucket. Raises OSError."""
        request = urllib.request.Request(
            f"{self.endpoint}/{path}",
            method=method,
            data=body.encode() or None,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if "BucketAlready" in error.read().decode():
                return b""
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
    parser.add_subparsers(dest="command", required=True).add_parser("fetch", help="build the program, print its path")
    parser.parse_args(arguments)
    try:
        print(fetch())
    except SeaweedUnavailableError as failure:
        print(f"seaweedfs: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
