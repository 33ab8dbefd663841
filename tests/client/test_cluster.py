"""A cluster as one user sees it, at a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost import Broker
from fencepost.client.cluster import Cluster
from fencepost.client.errors import LogInNeededError, UnreachableError
from fencepost.client.log_in import Credentials
from fencepost.client.session import ClientOptions
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with Broker() as broker:
        broker.topic("receipts", partitions=2)
        made = Cluster([("127.0.0.1", 1), (broker.host, broker.port)], ClientOptions())
        yield made
        made.close()


async def test_a_view_has_brokers_and_topics_from_the_first_address_that_answers(cluster: Cluster) -> None:
    view = await cluster.view()
    assert len(view.topics["receipts"].partitions) == 2
    assert {one.leader for one in view.topics["receipts"].partitions} <= view.nodes.keys()
    assert list((await cluster.view(["receipts"])).topics) == ["receipts"]


async def test_each_broker_the_controller_and_a_coordinator_answer(cluster: Cluster) -> None:
    replies = await cluster.send_to_all(ListTransactionsRequest())
    assert [reply.error_code for reply in replies.values()] == [0]
    assert (await cluster.send_to_controller(ListTransactionsRequest())).error_code == 0
    request = DescribeTransactionsRequest(transactional_ids=["till-1"])
    (found,) = (await cluster.send_to_coordinator(CoordinatorKind.TRANSACTION, "till-1", request)).transaction_states
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_broker_that_is_not_there_and_a_missing_leader_are_said_so(cluster: Cluster) -> None:
    with pytest.raises(UnreachableError, match="the cluster has no broker 77"):
        await cluster.send(ListTransactionsRequest(), 77)
    with pytest.raises(UnreachableError, match="there is no leader"):
        await cluster.send(ListTransactionsRequest(), -1)


async def test_rights_and_apis_are_known(cluster: Cluster) -> None:
    assert await cluster.may_describe_cluster()
    assert await cluster.serves(ApiKey.METADATA)
    assert not await cluster.serves(ApiKey.BEGIN_QUORUM_EPOCH)
    assert cluster.user is None
    assert cluster.bootstrap.startswith("127.0.0.1:1,")


async def test_a_needed_log_in_names_the_mechanisms_and_then_works() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required user_admin="admin-secret";',
    }
    with Broker(settings=settings) as broker:
        bootstrap = [(broker.host, broker.port)]
        stranger = Cluster(bootstrap, ClientOptions())
        with pytest.raises(LogInNeededError) as needed:
            await stranger.view()
        assert needed.value.mechanisms == ("PLAIN",)
        stranger.close()
        admin = Cluster(bootstrap, ClientOptions(credentials=Credentials("PLAIN", "admin", "admin-secret")))
        assert (await admin.view()).nodes
        assert admin.user == "admin"
        admin.close()


async def test_a_closed_client_opens_no_connection_again(cluster: Cluster) -> None:
    await cluster.view(())
    cluster.close()
    assert cluster.is_closed
    with pytest.raises(UnreachableError, match="closed"):
        await cluster.view(())


def test_clients_of_one_user_are_alike_and_others_are_not() -> None:
    def identity(user: str, secret: str) -> object:
        return Cluster([("b", 1)], ClientOptions(credentials=Credentials("PLAIN", user, secret))).identity

    assert identity("ann", "s") == identity("ann", "s")
    assert len({identity("ann", "s"), identity("ann", "t"), identity("bob", "s")}) == 3
