"""Kafka's own Java client, fetched once into the checkout's cache by the Ivy that pyspark brings along."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[1]
KAFKA_CLIENTS_VERSION = "4.3.0"
FETCH_TIMEOUT_S = 180


def kafka_clients_class_path() -> str:
    """The class path of kafka-clients and what it needs. Needs Java and a package registry on the first call."""
    folder = ROOT / ".cache" / "kafka-clients" / KAFKA_CLIENTS_VERSION
    complete = folder / ".complete"
    if not complete.exists():
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        subprocess.run(
            [
                *("java", "-jar", str(ivy)),
                *("-settings", str(ROOT / "scripts" / "pipeline" / "ivysettings.xml")),
                *("-cache", str(ROOT / ".cache" / "ivy" / "kafka-clients")),
                *("-dependency", "org.apache.kafka", "kafka-clients", KAFKA_CLIENTS_VERSION),
                *("-confs", "default", "-types", "jar", "bundle"),
                *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=FETCH_TIMEOUT_S,
            check=True,
        )
        complete.touch()
    return f"{folder}/*"
