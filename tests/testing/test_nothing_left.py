"""What a broker for tests leaves behind: nothing; and what a served broker has of it: nothing."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fencepost import Broker
from fencepost.in_process import IN_MEMORY
from fencepost.testing.loop_broker import AsyncBroker
from tests.support.held_resources import held


def temporary_directories() -> set[str]:
    return {
        name
        for root in {tempfile.gettempdir(), IN_MEMORY}
        if os.path.isdir(root)
        for name in os.listdir(root)
        if name.startswith("fencepost-")
    }


def use(broker: Broker) -> None:
    broker.topic("orders", partitions=3)
    broker.produce("orders", "x")
    with broker.hold("Produce", optional=True):
        broker.records("orders")
    broker.advance(minutes=1)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=(pytest.mark.long, pytest.mark.timeout(600)))])
def test_many_brokers_leave_no_threads_descriptors_or_files(count: int) -> None:
    with Broker() as broker:
        use(broker)
    before = held()
    others = temporary_directories()
    for number in range(count):
        with Broker() as broker:
            directory = broker.data_directory
            use(broker)
            if number % 10 == 0:
                broker.crash()
                broker.restart()
        assert not os.path.exists(directory)
    assert held().more_than(before) == []
    assert not {name for name in temporary_directories() - others if name in directory}


async def test_a_broker_on_a_loop_leaves_no_tasks_or_descriptors() -> None:
    tasks = asyncio.all_tasks()
    async with AsyncBroker() as broker:
        await broker.topic("orders")
    before = held()
    for _ in range(20):
        async with AsyncBroker() as broker:
            await broker.topic("orders")
            await broker.produce("orders", "x")
            await broker.records("orders")
    assert held().descriptors - before.descriptors == frozenset()
    assert asyncio.all_tasks() == tasks


def test_a_served_broker_imports_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "from fencepost.cli.main import main\n"
        f"sys.argv = ['fencepost', 'serve', '--listener', '127.0.0.1:0', '--data-dir', {str(tmp_path)!r}]\n"
        "atexit.register(lambda: print(sorted(sys.modules)))\n"
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as served:
        assert served.stdout is not None
        assert any("ready: " in line for line in served.stdout)
        served.terminate()
        loaded = ast.literal_eval(served.stdout.read().splitlines()[-1])
    assert "fencepost.broker.node" in loaded
    assert not [name for name in loaded if name.startswith(("fencepost.testing", "fencepost.in_process"))]
