"""Share groups with Kafka's own Java client, unmodified: what it prints here it prints with Apache Kafka, too."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.support.broker_process import BrokerProcess

PROGRAM = Path(__file__).parent / "java" / "ShareGroups.java"
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
# Recorded from Apache Kafka 4.4 with the same settings.
EXPECTED = {
    "explicit": [
        "committed: yes",
        "committed: yes",
        "nothing comes: true",
        "{0=[1, 2], 1=[1], 2=[1], 3=[1, 2], 4=[1], 5=[1], 6=[1, 2], 7=[1], 8=[1], 9=[1, 2], 10=[1], 11=[1]}",
    ],
    "implicit": ["offset 10 for the 1. time"],
    "locks": [
        "kept [0, 1, 2]",
        "offset 0 for the 2. time",
        "offset 1 for the 2. time",
        "offset 2 for the 2. time",
        "committed: InvalidRecordStateException",
        "committed: yes",
    ],
    "renewal": [*["committed: yes"] * 4, "nothing comes: true"],
    "limit": ["nothing comes: true", "[1, 2, 3]"],
    "two": ["1000 records, more than once 0", "by [first, second]", "lag 0"],
    "record-limit": ["1000 records, more than once 0", "by [first, second]", "lag 0"],
    "transactions": [
        "nothing comes: true",
        "{0=committed, 1=committed, 2=committed, 8=committed, 9=committed, 10=committed}",
    ],
    "administration": [
        "Stable 1",
        "[administration-0, administration-1]",
        "Optional[Share] share Optional[Stable]",
        "GroupNotEmptyException",
        "GroupNotEmptyException",
        "lag 0",
        "moved to 1, lag known true",
        "again from 1",
        "left {}",
        "UnknownTopicOrPartitionException",
        "GroupIdNotFoundException",
        "GroupIdNotFoundException",
    ],
    "crash": ["half", "accepted 1000, again 0"],
}


@pytest.fixture
def share_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    process.start()
    yield process
    process.kill()
    assert "Traceback" not in process.output, process.output


@pytest.mark.timeout(300)
def test_the_share_consumer_sees_the_same_as_with_apache_kafka(share_broker: BrokerProcess) -> None:
    """Explicit and implicit acknowledgement, redelivery, locks and their renewal, the delivery limit, two members on
    one partition, transactions, administration; and the broker is killed in the middle: what was acknowledged does not
    come again, and the rest does."""
    command = ["java", "-cp", kafka_clients_class_path(), str(PROGRAM), share_broker.bootstrap, *EXPECTED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        seen: dict[str, list[str]] = {}
        scenario = ""
        for line in program.stdout:
            text = line.rstrip("\n")
            if text.startswith("# "):
                scenario = text.removeprefix("# ")
                seen[scenario] = []
                continue
            seen[scenario].append(text)
            if text == "half":
                share_broker.restart_after_kill()
                program.stdin.write("\n")
                program.stdin.flush()
    assert seen == EXPECTED
    assert program.returncode == 0
