"""The longest step of the event loop for each of the operations that have much to do.

As a program, it does the operations one after another, each on a new broker in its own process, and prints a line of
JSON for each: `python -m scripts.benchmarks.loop_delay DIRECTORY SIZES [OPERATION...]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fencepost.broker.config import Settings, load_settings
from fencepost.broker.config.loading import Entry
from fencepost.broker.kernel.logging import configure_logging
from fencepost.broker.node import Node
from fencepost.broker.process.serve import COLLECTION_THRESHOLDS
from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.client import Client
from scripts.benchmarks.client_process import ClientFailedError
from scripts.benchmarks.figures import Figure, Round, Sample, Sizes, Target
from scripts.benchmarks.loop_bench import Bench
from scripts.benchmarks.loop_operations import OPERATIONS, Operation
from scripts.benchmarks.loop_steps import LoopSteps

LONGEST_STEP_MS = 20.0
WORST_STEP, COLLECTION = "longest step", "longest garbage collection"
SETTINGS = {"fencepost.max.partitions": "200000"}
SETTLING_S = 0.3
"""For steps that follow the reply."""
CLIENT_TIMEOUT_S = 300.0


def measure(round_: Round) -> Iterator[Sample]:
    command = [sys.executable, "-m", "scripts.benchmarks.loop_delay", str(round_.scratch), json.dumps(round_.sizes)]
    for operation in OPERATIONS:
        round_.say(operation.name)
        done = subprocess.run([*command, operation.name], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClientFailedError(f"{operation.name}: {done.stderr}")
        measured = json.loads(done.stdout.splitlines()[-1])
        print(f"{measured['step_ms']:8.1f} ms  {operation.name}: {measured['name']}", file=sys.stderr, flush=True)
        yield Sample(WORST_STEP, measured["step_ms"], "ms", operation.name)
        yield Sample(COLLECTION, measured["collection_ms"], "ms", operation.name)


async def measure_operation(operation: Operation, directory: Path, sizes: Sizes) -> dict[str, object]:
    """Do it on a new broker in this process, with a client on another thread."""
    node = Node(_settings(directory, operation, sizes))
    steps = LoopSteps()
    await node.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)

    @contextlib.contextmanager
    def measured() -> Iterator[None]:
        with steps:
            yield
            time.sleep(SETTLING_S)

    def work() -> None:
        with Client(("127.0.0.1", node.address.port), timeout_s=CLIENT_TIMEOUT_S) as client:
            operation.run(Bench(client, sizes, measured))

    try:
        await asyncio.to_thread(work)
    finally:
        await node.stop()
    return {
        "operation": operation.name,
        "step_ms": steps.worst.duration_s * 1_000,
        "name": steps.worst.name,
        "collection_ms": steps.longest_collection_s * 1_000,
    }


def _settings(directory: Path, operation: Operation, sizes: Sizes) -> Settings:
    given = {**SETTINGS, "num.partitions": str(sizes["partitions"]), **operation.settings}
    return load_settings(
        properties_path=None,
        assignments=[f"{name}={value}" for name, value in given.items()],
        environment={},
        options=[
            Entry("listeners", "PLAINTEXT://127.0.0.1:0", "--listener"),
            Entry("log.dirs", str(directory), "--data-dir"),
        ],
    ).settings


def main(directory: str, sizes: str, *names: str) -> None:
    """Print what the operations of these names took, or all."""
    configure_logging(log_format="json", level="error")
    for number, operation in enumerate(OPERATIONS):
        if names and operation.name not in names:
            continue
        measured = asyncio.run(measure_operation(operation, Path(directory) / f"{number}", json.loads(sizes)))
        print(json.dumps(measured), flush=True)


FIGURES = (
    Figure(
        name="loop-delay",
        about="the longest step of the event loop, in processor time, for each operation that has much to do",
        measure=measure,
        sizes={"partitions": 5_000, "described_partitions": 50_000, "records": 300_000, "producers": 20_000},
        small_sizes={"partitions": 20, "described_partitions": 40, "records": 20_000, "producers": 20},
        targets=(Target(WORST_STEP, LONGEST_STEP_MS),),
    ),
)

if __name__ == "__main__":
    main(*sys.argv[1:])
