"""Clusters of the console, with a client that no broker answers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencepost.client.cluster import Cluster
from fencepost.client.errors import LogInNeededError
from fencepost.client.log_in import Credentials
from fencepost.client.session import ClientOptions
from fencepost.client.view import ClusterView
from fencepost.console.options import ClusterOptions
from fencepost.console.roles import Role
from fencepost.console.web.clusters import OtherClusterError, ShownCluster

BOOTSTRAP = (("127.0.0.1", 1),)


def leads_to(monkeypatch: pytest.MonkeyPatch, cluster_id: str) -> None:
    async def view(*_: object) -> ClusterView:
        return ClusterView(cluster_id, -1, {})

    monkeypatch.setattr(Cluster, "view", view)


async def test_a_name_that_leads_to_another_cluster_has_a_warning_until_it_leads_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ShownCluster(ClusterOptions(BOOTSTRAP))
    leads_to(monkeypatch, "first")
    await cluster.shared.view(())
    cluster.check_id()
    assert cluster.warning == ""
    leads_to(monkeypatch, "second")
    await cluster.shared.view(())
    assert "its id is second, and it was first" in cluster.warning
    with pytest.raises(OtherClusterError):
        cluster.check_id()
    leads_to(monkeypatch, "first")
    await cluster.shared.view(())
    cluster.check_id()


async def test_an_id_that_is_configured_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ShownCluster(ClusterOptions(BOOTSTRAP, cluster_id="prod-id"))
    leads_to(monkeypatch, "test-id")
    await cluster.shared.view(())
    assert "its id is test-id, and it was prod-id" in cluster.warning


def test_a_role_has_a_client_of_its_own_user_and_the_others_share_one() -> None:
    login = ClientOptions(None, Credentials("PLAIN", "console-admin", "secret"))
    cluster = ShownCluster(ClusterOptions(BOOTSTRAP, logins={Role.ADMIN: login}))
    assert cluster.client_of(Role.ADMIN) is cluster.client_of(Role.ADMIN)
    assert cluster.client_of(Role.ADMIN).user == "console-admin"
    assert cluster.client_of(Role.VIEWER) is cluster.shared


async def test_a_cluster_says_whether_it_needs_a_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ShownCluster(ClusterOptions(BOOTSTRAP))

    async def view(_: Cluster, names: Iterable[str] | None = None) -> ClusterView:
        raise LogInNeededError(("PLAIN",))

    monkeypatch.setattr(Cluster, "view", view)
    await cluster.learn_mechanisms()
    assert cluster.needs_log_in
    assert cluster.mechanisms == ("PLAIN",)
