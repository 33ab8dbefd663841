"""Java client of the soak: its compilation, and the check that this machine can run it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "SoakClient.java"
COMPILE_TIMEOUT_S = 120
# Short runs, small heaps, several beside a broker: quick starts matter, fast code does not.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx96m", "-Xshare:auto")


class NoJavaError(Exception):
    """The Java client cannot be run here; the message is the reason."""


def compiled_class_path(directory: Path) -> str:
    """Compile the program into this directory; returns its class path. Raises NoJavaError."""
    for tool in ("javac", "java"):
        if shutil.which(tool) is None:
            raise NoJavaError(f"no {tool} on PATH; a JDK of version 17 or newer is needed")
    try:
        from fencepost.soak.kafka_jars import kafka_clients_class_path  # needs pyspark, for its Ivy
    except ImportError as error:
        raise NoJavaError(f"nothing to fetch Kafka's jars with: {error}") from error
    try:
        jars = kafka_clients_class_path()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NoJavaError(f"Kafka's jars could not be fetched: {error}") from error
    directory.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["javac", "-d", str(directory), "-cp", jars, str(SOURCE)],
            check=True,
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoJavaError(f"{SOURCE.name} was not compiled:\n{error.stderr}") from error
    return f"{directory}:{jars}"
