"""Spark's own cluster, with each worker at an address of its own: Spark speculates on another host alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import psutil
import pyspark

from fencepost.soak.free_port import free_port
from tests.support.broker_process import ROOT

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_TIMEOUT_S = 120.0
PAUSE_S = 0.1


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 3) -> Iterator[str]:
    """The name of a running cluster, as the option `master` takes it. Its logs are in the folder."""
    port = free_port()
    with ExitStack() as stack:
        master_log = folder / "spark-master.log"
        stack.enter_context(_daemon("master.Master", master_log, "--host", "127.0.0.1", "--port", str(port)))
        name = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            address, log = f"127.0.0.{number + 2}", folder / f"spark-worker-{number}.log"
            limits = ("--cores", str(cores), "--memory", "2g", "--work-dir", str(folder / f"worker-{number}"))
            stack.enter_context(_daemon("worker.Worker", log, "--host", address, *limits, name))
        give_up_at_s = time.monotonic() + START_TIMEOUT_S
        while master_log.read_text().count("Registering worker") < workers:
            assert time.monotonic() < give_up_at_s, master_log.read_text()
            time.sleep(PAUSE_S)
        yield name


@contextmanager
def _daemon(name: str, log_path: Path, *arguments: str) -> Iterator[None]:
    log: IO[bytes]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "true"},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        ending = [*psutil.Process(process.pid).children(recursive=True), process]
        for one in ending:
            one.kill()
        process.wait()
