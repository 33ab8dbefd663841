"""Requests of commands over the client of our own, and their errors as one line."""

from __future__ import annotations

import click
import pytest

from fencepost import Broker
from fencepost.cli.sending import brokers, send_to_coordinator
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.metadata import MetadataRequest


def test_a_request_goes_to_any_broker_or_to_the_coordinator_of_a_group() -> None:
    with Broker() as broker, brokers(broker.bootstrap_servers) as cluster:
        assert cluster.send(MetadataRequest()).brokers
        (group,) = send_to_coordinator(cluster, "absent", ConsumerGroupDescribeRequest(group_ids=["absent"])).groups
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_broker_that_dies_becomes_one_line() -> None:
    def ask_while_it_dies() -> None:
        with brokers(broker.bootstrap_servers) as cluster:
            broker.stop()
            cluster.send(MetadataRequest())

    with Broker() as broker, pytest.raises(click.ClickException, match=rf"no broker answers at {broker.host}:\d+: "):
        ask_while_it_dies()
