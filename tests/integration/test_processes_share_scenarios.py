"""Share groups over several processes with Kafka's Java client: all scenarios that one process is held to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.integration.test_share_groups import EXPECTED, PROGRAM, SETTINGS
from tests.support.broker_processes import BrokerProcesses

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
def test_the_share_consumer_sees_over_three_processes_what_it_sees_with_apache_kafka(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        scenarios = [name for name in EXPECTED if name != "crash"]
        command = ["java", "-cp", kafka_clients_class_path(), str(PROGRAM), broker.bootstrap, *scenarios]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        seen: dict[str, list[str]] = {}
        for line in ended.stdout.splitlines():
            if line.startswith("# "):
                lines = seen[line.removeprefix("# ")] = []
            else:
                lines.append(line)
        assert seen == {name: EXPECTED[name] for name in scenarios}
        assert "Traceback" not in broker.output, broker.output
