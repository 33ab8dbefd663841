"""Kafka's own Java client in groups of the consumer protocol; with Apache Kafka the program prints the same lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.support.broker_process import BrokerProcess

PROGRAM = Path(__file__).parent / "java" / "ConsumerGroups.java"
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
PRINTED_WITH_KAFKA = """\
uniform [2, 2]
uniform grown [3, 3]
uniform unsubscribed [6, 0]
uniform left [0, 1, 2, 3, 4, 5]
range [[0, 1], [2, 3]]
range grown [3, 3]
range unsubscribed [6, 0]
range left [0, 1, 2, 3, 4, 5]
pattern 5
pattern narrowed 2
pattern wrong InvalidRegularExpression
static same partitions true
static same epoch true
static thief UnreleasedInstanceIdException
static away 2
static removed 1
commits 5 note
commits stranger CommitFailedException
commits stranger reads 5
commits of an empty group 7
slow 1
slow again [2, 2]
transactions 3
transactions kept since 4
transactions moved CommitFailedException
described Stable Consumer uniform false 2 2
member seen /127.0.0.1 2 Optional[true] Optional.empty 2 2
listed Consumer true
listed Classic false
missing GroupIdNotFoundException
not empty GroupNotEmptyException
subscribed GroupSubscribedToTopicException
altered UnknownMemberIdException
offsets 9
deleted GroupIdNotFoundException
RangeAssignor Classic [2, 2]
RangeAssignor Consumer 3
RangeAssignor Consumer 2
RangeAssignor Classic 1
CooperativeStickyAssignor Classic [2, 2]
CooperativeStickyAssignor Consumer 3
CooperativeStickyAssignor Consumer 2
CooperativeStickyAssignor Classic 1
"""


@pytest.mark.timeout(300)
def test_members_share_commit_restart_and_change_their_protocol_as_with_kafka(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        finished = subprocess.run(
            ["java", "-cp", kafka_clients_class_path(), str(PROGRAM), broker.bootstrap, "java"],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert finished.stdout == PRINTED_WITH_KAFKA, finished.stderr
        assert "Traceback" not in broker.output, broker.output
