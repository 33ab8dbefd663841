"""Apicurio Registry, which has Confluent's API, as a process of its own. Maven fetches it once: 110 MB."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import CACHE, maven_repository
from tests.support.missing_tools import missing, require_tool

VERSION = "3.0.9"
"""The last line that runs on Java 17."""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
"""Later ones read the parents of an artifact, too, and not all of them are published."""
START_LIMIT_S = 180


def fetch() -> Path:
    """The folder with the program. Skips the test without Java, Maven or the artifact."""
    require_tool("java")
    require_tool("mvn")
    folder = CACHE / "apicurio" / VERSION
    if not (folder / ".complete").exists():
        with maven_repository() as repository:
            if not (folder / ".complete").exists():
                _unpack(repository, folder)
    return folder


def _unpack(repository: Path, folder: Path) -> None:
    artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    command = ["mvn", "-q", "-B", PLUGIN, artifact, "-Dtransitive=false", f"-Dmaven.repo.local={repository}"]
    if subprocess.run(command, capture_output=True, check=False, timeout=600).returncode:
        missing(f"Maven could not fetch Apicurio Registry {VERSION}")
    (archive,) = repository.glob(f"io/apicurio/apicurio-registry-app/{VERSION}/*-all.tar.gz")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (folder / ".complete").touch()


@contextmanager
def apicurio(log: Path) -> Iterator[str]:
    """Run it with its data in memory; yields the address of Confluent's API."""
    folder = fetch()
    (program,) = folder.glob("*-runner.jar")
    port = free_port()
    environment = {**os.environ, "QUARKUS_HTTP_PORT": str(port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-jar", str(program)], cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < deadline_s, log.read_text()[-2_000:]
            time.sleep(0.2)
