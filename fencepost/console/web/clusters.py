"""The clusters of a console: their clients, their log-ins, and whether a name still leads to the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, LogInNeededError
from fencepost.client.log_in import Credentials
from fencepost.client.session import ClientOptions
from fencepost.client.view import ClusterView
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.options import ClusterOptions
from fencepost.console.roles import Role
from fencepost.console.values import Values

CLIENT_ID: Final = "fencepost-console"


class OtherClusterError(ClusterError):
    """A name leads to another cluster than before."""


class WatchedCluster(Cluster):
    """A client that reports the cluster's id whenever it reads a view."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], options: ClientOptions, learn_id: Callable[[str], None]
    ) -> None:
        super().__init__(bootstrap, options)
        self._learn_id = learn_id

    async def view(self, names: Iterable[str] | None = None) -> ClusterView:
        view = await super().view(names)
        self._learn_id(view.cluster_id)
        return view


class ShownCluster:
    """A cluster of the console, and the parts of it that all people share."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.name = options.name
        self.http = BrokerHttp(options.broker_http, options.broker_http_token)
        self.values = Values(options)
        self.mechanisms: tuple[str, ...] = ()
        self.needs_log_in = bool(options.needs_log_in)
        self.cluster_id = options.cluster_id
        self.other_id: str | None = None
        """The id of the cluster to which the name leads now, if that is another one."""
        self.shared = self.client(None)
        """For people who need not log in."""
        self._by_role: dict[Role, Cluster] = {}

    def close(self) -> None:
        for client in (self.shared, *self._by_role.values()):
            client.close()

    def client(self, credentials: Credentials | None) -> Cluster:
        """A new client, for the caller to close."""
        options = ClientOptions(self.options.tls, credentials, CLIENT_ID)
        return WatchedCluster(self.options.bootstrap, options, self._learn_id)

    def client_of(self, role: Role) -> Cluster:
        """The client that all people of a role share: of the role's own user, or of none."""
        login = self.options.logins.get(role)
        if login is None:
            return self.shared
        if role not in self._by_role:
            self._by_role[role] = WatchedCluster(self.options.bootstrap, login, self._learn_id)
        return self._by_role[role]

    @property
    def own_clients(self) -> Sequence[Cluster]:
        """Those that ask without a person: as nobody, unless that is known not to do, and as the roles' users."""
        nobody = () if self.needs_log_in else (self.shared,)
        return [*nobody, *(self.client_of(role) for role in self.options.logins)]

    async def learn_mechanisms(self) -> None:
        """Ask the cluster whether it needs a log-in, and by which mechanisms. Raises ClusterError."""
        if self.mechanisms:
            return
        try:
            await self.shared.view(())
        except LogInNeededError as error:
            self.needs_log_in = True
            self.mechanisms = error.mechanisms
        else:
            self.needs_log_in = bool(self.options.needs_log_in)

    def refused_log_in(self, mechanisms: tuple[str, ...]) -> None:
        """A password may have been changed, or the cluster secured, since the last log-in."""
        self.needs_log_in = True
        self.mechanisms = mechanisms or self.mechanisms

    def _learn_id(self, cluster_id: str) -> None:
        if self.cluster_id is None:
            self.cluster_id = cluster_id or None
        if cluster_id:
            self.other_id = None if cluster_id == self.cluster_id else cluster_id

    @property
    def warning(self) -> str:
        """Whether the name leads to another cluster than before, in a sentence."""
        if self.other_id is None:
            return ""
        return (
            f"This is another cluster than before: its id is {self.other_id}, and it was {self.cluster_id}. "
            "Changes are refused until the console is started again."
        )

    def check_id(self) -> None:
        """Raises OtherClusterError if the name leads to another cluster than before."""
        if self.other_id is not None:
            raise OtherClusterError(self.warning)
