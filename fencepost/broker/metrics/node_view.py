"""The node as the HTTP listener reads it: its parts, and the observers that exist only with an HTTP listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.broker.cluster.machines.engine_figures import EngineFigures
    from fencepost.broker.config import Settings
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.metrics.connection_rates import CreationRates
    from fencepost.broker.metrics.group_lags import GroupLags
    from fencepost.broker.metrics.loop_delay import LoopDelay
    from fencepost.broker.metrics.producer_clients import ProducerClients
    from fencepost.broker.metrics.request_metrics import RequestMetrics
    from fencepost.broker.metrics.storage_metrics import DepartedTraffic, SyncMetrics
    from fencepost.broker.metrics.transaction_metrics import TransactionMetrics
    from fencepost.broker.network.network_memory import NetworkMemory
    from fencepost.broker.network.server import Server
    from fencepost.broker.requests.api import Services
    from fencepost.broker.security.tls import ListenerTls
    from fencepost.check_back.service import CheckBack


@dataclass(slots=True)
class NodeView:
    """The parts of a node that is started.

    certificates: those of the listeners with TLS, by name.
    check_back: None without resolvers. engine_figures: None if the files of the logs are the broker's own.
    started_ms: wall time of the start. failure: returns the reason why the node stopped, else None.
    """

    services: Services
    settings: Settings
    servers: Sequence[Server]
    network_memory: NetworkMemory
    requests: RequestMetrics
    clients: ProducerClients
    syncs: SyncMetrics
    departed: DepartedTraffic
    transactions: TransactionMetrics
    loop_delay: LoopDelay
    creation_rates: CreationRates
    group_lags: GroupLags
    certificates: Mapping[str, ListenerTls]
    check_back: CheckBack | None
    engine_figures: Callable[[], EngineFigures] | None
    started_ms: int
    data_directory: str
    failure: Callable[[], str | None]

    def logs(self) -> Iterable[PartitionLog]:
        """The open logs of this node."""
        return self.services.topics.directory.logs()
