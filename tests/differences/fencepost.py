"""A Fencepost process for a comparison, on its own folder, with the settings under which Kafka is asked, too."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.differences.comparison import ROOT

READY = b"ready: "
SETTINGS = {
    # As scripts/apache_kafka.py has them; all other settings are at their defaults on both sides.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "node.id": "1",
}


@contextlib.contextmanager
def running_fencepost(
    protocol: str = "PLAINTEXT", security: Mapping[str, str] | None = None
) -> Iterator[tuple[str, int]]:
    """Host and port of a broker that ends with the context. Raises RuntimeError when it does not start.

    protocol, security: of its listener, and the settings that belong to it.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-diff-") as folder:
        command = [
            sys.executable,
            "-m",
            "fencepost",
            "serve",
            "--listener",
            f"{protocol}://127.0.0.1:0",
            "--data-dir",
            f"{folder}/data",
        ]
        for name, value in {**SETTINGS, **(security or {})}.items():
            command += ["--set", f"{name}={value}"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if READY not in line:
                raise RuntimeError(f"Fencepost did not start:\n{(Path(folder) / 'log').read_text()}")
            host, _, port = line.split(READY)[1].split()[0].decode().rpartition(":")
            yield host, int(port)
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
