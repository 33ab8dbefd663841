"""Java libraries, Kafka's most of all, fetched once by pyspark's Ivy.

They are stored in the cache of a checkout, `.cache`, or of the user if the package is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark

from fencepost.soak.single_instance import alone_in
from fencepost.spark import IVY_SETTINGS

PACKAGE = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (PACKAGE.parent / "pyproject.toml").exists()
CACHE = PACKAGE.parent / ".cache" if IS_CHECKOUT else Path.home() / ".cache" / "fencepost"
KAFKA_CLIENTS_VERSION = "4.4.0"
FETCH_TIMEOUT_S = 180


def kafka_class_path(artifact: str, version: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> str:
    """The class path of one of Kafka's artifacts, such as kafka-streams, and its dependencies.

    timeout_s: the time for fetching. Needs Java and a package registry on the first call.
    Raises subprocess.SubprocessError and OSError if the jars cannot be fetched.
    """
    return _class_path(CACHE / artifact / version, ["-dependency", "org.apache.kafka", artifact, version], timeout_s)


def module_class_path(module: Path, *, timeout_s: float = FETCH_TIMEOUT_S) -> str:
    """The class path of all that an Ivy file names, and its dependencies; a changed file is another class path.

    Otherwise as kafka_class_path.
    """
    fingerprint = hashlib.sha256(module.read_bytes()).hexdigest()[:12]
    return _class_path(CACHE / module.parent.name / fingerprint, ["-ivy", str(module)], timeout_s)


def _class_path(folder: Path, wanted: Sequence[str], timeout_s: float) -> str:
    complete = folder / ".complete"
    if not complete.exists():
        cache = CACHE / "ivy" / "kafka-clients"
        with alone_in(cache):  # Ivy expects no other Ivy there
            if not complete.exists():
                _fetch(wanted, cache, folder, timeout_s)
                complete.touch()
    return f"{folder}/*"


def _fetch(wanted: Sequence[str], cache: Path, folder: Path, timeout_s: float) -> None:
    """Download jars and their dependencies into a folder. wanted: the jars, as options of Ivy."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    subprocess.run(
        [
            *("java", "-jar", str(ivy)),
            *("-settings", str(IVY_SETTINGS)),
            *("-cache", str(cache)),
            *wanted,
            *("-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=timeout_s,
        check=True,
    )


def kafka_clients_class_path() -> str:
    """The class path of kafka-clients and its dependencies, in the version that this project uses."""
    return kafka_class_path("kafka-clients", KAFKA_CLIENTS_VERSION)
