"""A broker process with a SASL listener and ACLs, and what its super user sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fencepost.protocol.messages.acls import DescribeAclsRequest
from fencepost.protocol.messages.group_admin import ListGroupsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.scram_credentials import DescribeUserScramCredentialsRequest
from tests.differences.connection import Connection, Login
from tests.differences.secured.sides import ADMIN, PROTOCOL, SECURED_FENCEPOST
from tests.support.broker_process import BrokerProcess

ANY: Final = 1


def secured_process(data_directory: Path, settings: Mapping[str, str] | None = None) -> BrokerProcess:
    """One that is not started yet, for alice, bob, carol and the super user admin."""
    few = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    given = {**few, **SECURED_FENCEPOST, **(settings or {})}
    return BrokerProcess(data_directory, settings=given, protocol=PROTOCOL)


def connected(process: BrokerProcess, login: Login | None = None) -> Connection:
    """A connection, of a user unless it is nobody's."""
    connection = Connection(process.host, process.port)
    if login is not None:
        connection.log_in(login)
    return connection


def state_of(process: BrokerProcess) -> Any:
    """Topics, groups, rules and users, as the super user sees them."""
    with connected(process, ADMIN) as connection:
        answers = []
        asked: list[tuple[Any, int]] = [
            (MetadataRequest(None), 12),
            (ListGroupsRequest(), 4),
            (DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3),
            (DescribeUserScramCredentialsRequest(None), 0),
        ]
        for request, version in asked:
            connection.send(request, version)
            answers.append(connection.receive(request.api_key, version))
        topics, groups, acls, users = answers
        return (
            sorted((topic.name, len(topic.partitions)) for topic in topics.topics),
            sorted(group.group_id for group in groups.groups),
            acls.resources,
            users.results,
        )
