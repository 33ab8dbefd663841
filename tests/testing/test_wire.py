"""The helpers' client, with its errors in the words of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import Broker
from fencepost.client.plans import Address
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.metadata import MetadataResponse
from fencepost.testing.errors import MisuseError, RefusedError
from fencepost.testing.wire import WireClient, parse_bootstrap
from tests.support.odd_server import Asked, OddServer


def client_of(server: OddServer, timeout_s: float = 60) -> WireClient:
    return WireClient(str(server.address), timeout_s=timeout_s)


@pytest.fixture
def silent() -> Iterator[OddServer]:
    with OddServer(lambda asked: [b"\0"]) as server:
        yield server


def test_addresses_are_read_and_what_is_none_is_refused_with_an_example() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == (Address("a", 1), Address("::1", 2))
    with pytest.raises(MisuseError, match="give host:port, such as localhost:9092"):
        parse_bootstrap("localhost")


def test_a_broker_that_does_not_answer_in_time_is_a_timeout(silent: OddServer) -> None:
    client = client_of(silent, 0.5)
    with pytest.raises(TimeoutError, match=f"Metadata got no reply: {silent.address} gave no answer in 0.5 s"):
        client.metadata()
    client.close()


def test_a_broker_that_is_away_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionError, match="Metadata got no reply: no broker answers at"):
        WireClient("127.0.0.1:1").metadata()


def test_an_api_that_the_broker_lacks_is_a_misuse(silent: OddServer) -> None:
    client = client_of(silent)
    with pytest.raises(MisuseError, match="the broker does not serve ListGroups: use another"):
        client.call(ListGroupsRequest())
    client.close()


def test_an_odd_answer_is_a_lost_connection() -> None:
    def odd(asked: Asked) -> list[bytes]:
        return [asked._replace(number=0).reply(MetadataResponse())]

    with OddServer(odd) as server:
        client = client_of(server)
        with pytest.raises(ConnectionError, match=r"Metadata failed: the answer of .* cannot be read"):
            client.metadata()
        client.close()


def test_a_coordinator_that_never_gets_ready_is_a_refusal_with_kafkas_name() -> None:
    with Broker() as broker:
        client = WireClient(broker.bootstrap_servers, timeout_s=60)
        client._timeout_s = 0
        with pytest.raises(RefusedError, match=r"DescribeGroups: .*COORDINATOR_LOAD_IN_PROGRESS") as refused:
            client.coordinated(
                CoordinatorKind.GROUP,
                "g",
                DescribeGroupsRequest(groups=["g"]),
                lambda reply: int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            )
        assert refused.value.error == "COORDINATOR_LOAD_IN_PROGRESS"
        client.close()
