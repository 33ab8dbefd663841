"""The sink through Spark Connect, whose packages are in an environment of their own."""

from __future__ import annotations

import json
import site
import subprocess
import sys
from collections import Counter
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.support.broker_process import ROOT, BrokerProcess

PACKAGES = ("grpcio==1.76.0", "grpcio-status==1.76.0", "googleapis-common-protos==1.72.0", "pandas==2.3.3", "zstandard")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with what Spark Connect needs, and for all else the packages of this environment."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text("".join(f"{folder}\n" for folder in site.getsitepackages()))
    return environment / "bin" / "python"


def values(bootstrap: str, topic: str) -> Counter[str]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: Counter[str] = Counter()
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found[message.value().decode()] += 1
    consumer.close()
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_through_connect_queries_and_jobs_are_written_once_and_saves_are_refused(python: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        program = subprocess.run(
            [python, "-m", "tests.spark.connect_program", broker.bootstrap, tmp_path],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert program.returncode == 0, program.stderr[-10_000:]
        errors = json.loads(program.stdout.strip().splitlines()[-1])
        assert errors["job"] is None
        assert errors["stream"] is None
        assert "Spark does not say which run" in errors["foreach_batch"]
        once = Counter(map(str, range(20)))
        assert values(broker.bootstrap, "job") == once
        assert values(broker.bootstrap, "stream") == once
