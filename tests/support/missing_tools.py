"""Tools that users may lack: without one a test is skipped; in CI, where it is installed, the test fails."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from scripts import azurite
from scripts.apache_kafka import CACHE, KAFKA_VERSION, KafkaUnavailableError, fetch_jars
from scripts.seaweedfs import PROGRAM, SeaweedUnavailableError, fetch


def is_continuous_integration() -> bool:
    return bool(os.environ.get("CI"))


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI. what: the tool, and how to get it."""
    if is_continuous_integration():
        pytest.fail(f"{what}, and in CI no test is skipped for that", pytrace=False)
    pytest.skip(what)


def require_tool(name: str) -> None:
    """Go on if a program is on PATH."""
    if shutil.which(name) is None:
        missing(f"{name} is not installed: .ci/run installs it")


def require_apache_kafka() -> None:
    """Go on if Apache Kafka's jars are here. In CI they are fetched."""
    require_tool("java")
    if (CACHE / "kafka" / KAFKA_VERSION / ".complete").exists():
        return
    if not is_continuous_integration():
        missing("Apache Kafka was not fetched: scripts/apache_kafka.py fetch")
    try:
        fetch_jars()
    except KafkaUnavailableError as error:
        missing(str(error))


def require_seaweedfs() -> None:
    """Go on if SeaweedFS is here. In CI it is built, which takes some minutes once."""
    if PROGRAM.exists():
        return
    require_tool("go")
    if not is_continuous_integration():
        missing("SeaweedFS was not built: scripts/seaweedfs.py fetch")
    try:
        fetch()
    except SeaweedUnavailableError as error:
        missing(str(error))


def require_azurite() -> None:
    """Go on if Azurite is here. In CI it is installed."""
    if azurite.PROGRAM.exists():
        return
    require_tool("npm")
    if not is_continuous_integration():
        missing("Azurite was not installed: scripts/azurite.py fetch")
    try:
        azurite.fetch()
    except azurite.AzuriteUnavailableError as error:
        missing(str(error))
