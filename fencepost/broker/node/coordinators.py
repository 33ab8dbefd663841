"""The coordinators of a node: of transactions, groups and share groups; and the check-back of transactions in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.group.service import GroupService
from fencepost.broker.hosting.features import TRANSACTION_VERSION, Features
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.peers import Peers
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.random_ids import RandomIds
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.network.server import StartError
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.share.lazy_service import LazyShareService
from fencepost.broker.transaction.names import parse_expirations
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.remote_markers import RemoteMarkerChannel
from fencepost.broker.transaction.remote_verification import RemoteTransactionVerifier
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.sink_tasks import SinkTasks
from fencepost.broker.transaction.verification import TransactionVerifier

if TYPE_CHECKING:
    from fencepost.broker.check_back_host.service import BrokerCheckBack


@dataclass(frozen=True)
class Coordinators:
    """check_back: None without resolvers."""

    transactions: TransactionService
    verifier: TransactionVerifier
    group_configs: GroupConfigs
    groups: GroupService
    shares: LazyShareService
    check_back: BrokerCheckBack | None


async def start_coordinators(
    base: Foundation, topics: Topics, logs: LogDirectory, features: Features, peers: Peers | None
) -> Coordinators:
    """Start them; they load while the node's start continues. peers: None if there are no other nodes.

    Raises StorageError or StartError.
    """
    settings, clock, cleanup = base.settings, base.clock, base.cleanup
    producer_ids = ProducerIds(base.store, node_id=settings.node_id)
    transactions, verifier = _coordinate_transactions(base, topics, peers, producer_ids)
    logs.has_owner = transactions.owns
    group_configs = GroupConfigs(base.store, settings)
    await group_configs.open()
    groups = GroupService(
        topics,
        settings,
        clock,
        new_member_id_suffix=RandomIds(base.randomness).text,
        group_configs=group_configs,
    )
    cleanup.push_async_callback(transactions.close)
    _watch_features(features, transactions)
    if settings.fencepost_spark_decision_topics:
        _finish_decided_batches(base, topics, transactions, peers)
    await transactions.start()
    await groups.start()
    cleanup.push_async_callback(groups.close)
    shares = LazyShareService(
        topics,
        groups,
        group_configs,
        settings,
        clock,
        take_producer_id=producer_ids.take,
        peers=peers,
    )
    shares.start()
    cleanup.push_async_callback(shares.close)
    if settings.fencepost_two_phase_abandoned_ms_by_name:
        # Imported here: most brokers have no bound for pools.
        from fencepost.broker.transaction.abandoned import Abandoned

        bounds = parse_expirations(settings.fencepost_two_phase_abandoned_ms_by_name)
        abandoned = Abandoned(bounds, transactions, topics, peers)
        abandoned.start()
        cleanup.push_async_callback(abandoned.close)
    check_back = _check_back(base, topics, transactions, peers) if settings.check_back else None
    return Coordinators(transactions, verifier, group_configs, groups, shares, check_back)


def _coordinate_transactions(
    base: Foundation, topics: Topics, peers: Peers | None, producer_ids: ProducerIds
) -> tuple[TransactionService, TransactionVerifier]:
    """Make the transaction coordinator and the verifier; in a cluster, both send requests to other nodes.

    The senders of these requests are closed after the coordinator.
    """
    settings, clock, cleanup = base.settings, base.clock, base.cleanup
    if peers is None:
        transactions = TransactionService(topics, producer_ids, settings, clock)
        return transactions, TransactionVerifier(transactions)
    timeout_ms = settings.request_timeout_ms
    markers = RemoteMarkerChannel(topics, peers, clock, request_timeout_ms=timeout_ms)
    transactions = TransactionService(topics, producer_ids, settings, clock, markers=markers)
    verifier = RemoteTransactionVerifier(transactions, topics, peers, request_timeout_ms=timeout_ms)
    cleanup.push_async_callback(peers.close)
    cleanup.push_async_callback(markers.close)
    cleanup.push_async_callback(verifier.close)
    return transactions, verifier


def _watch_features(features: Features, transactions: TransactionService) -> None:
    def changed() -> None:
        transactions.set_transaction_version(features.level(TRANSACTION_VERSION))

    changed()
    features.on_changed.append(changed)


def _finish_decided_batches(
    base: Foundation, topics: Topics, transactions: TransactionService, peers: Peers | None
) -> None:
    """Have the decided batches of Spark's sinks finished."""

    async def watch(tasks: SinkTasks) -> None:
        # Imported here: most brokers see no task of a sink.
        from fencepost.broker.check_back_host.decided_batches import DecidedBatches
        from fencepost.broker.check_back_host.log_lookup import Logs

        logs = Logs(topics, base.clock, peers)
        globs = base.settings.fencepost_spark_decision_topics
        await DecidedBatches(globs, tasks, logs, transactions, base.clock).run()

    transactions.sink_tasks = SinkTasks(watch)
    base.cleanup.push_async_callback(transactions.sink_tasks.close)


def _check_back(
    base: Foundation, topics: Topics, transactions: TransactionService, peers: Peers | None
) -> BrokerCheckBack:
    """Make the check-back, which begins when clients are served. Raises StartError."""
    transactions.two_phase_ids = tuple(glob for one in base.settings.check_back for glob in one.ids)
    # Imported here: most brokers check nothing back.
    from fencepost.broker.check_back_host.service import BrokerCheckBack

    try:
        check_back = BrokerCheckBack(base.settings, topics, transactions, base.clock, peers=peers)
    except ValueError as error:
        raise StartError(str(error)) from None
    base.cleanup.push_async_callback(check_back.close)
    return check_back
