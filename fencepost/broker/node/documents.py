"""Documents of the metadata store that every node has: settings, quotas, features, client metrics, users, rights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.listeners import ALL_INTERFACES, SecurityProtocol
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.client_metrics_configs import ClientMetricsConfigs
from fencepost.broker.hosting.features import Features
from fencepost.broker.hosting.scram_credentials import ScramCredentials
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.random_ids import RandomIds
from fencepost.broker.network.server import StartError
from fencepost.broker.node.background import remove_expired_tokens
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.requests.api import Services

if TYPE_CHECKING:
    from fencepost.broker.security.delegation_token_store import DelegationTokens
    from fencepost.broker.telemetry.client_metrics import ClientMetrics

log = get_logger(__name__)


@dataclass(frozen=True)
class Documents:
    """Documents in force from the start on; `BrokerConfigs` comes before them, as it decides about the rest."""

    client_quotas: ClientQuotas
    client_metrics_configs: ClientMetricsConfigs
    features: Features
    scram_credentials: ScramCredentials
    delegation_tokens: DelegationTokens | None


async def open_broker_configs(base: Foundation, *, is_alone: bool) -> BrokerConfigs:
    """Put the dynamic settings in force. is_alone: whether no other node could lead partitions. Raises StorageError."""
    broker_configs = BrokerConfigs(base.store, base.settings)
    broker_configs.checks.append(partial(_drain_problem, is_alone))
    await broker_configs.open()
    return broker_configs


async def open_documents(base: Foundation) -> Documents:
    """Raises StorageError."""
    client_quotas = ClientQuotas(base.store, base.settings, base.clock)
    await client_quotas.open()
    client_metrics_configs = ClientMetricsConfigs(base.store)
    await client_metrics_configs.open()
    features = Features(base.store, base.settings)
    await features.open()
    scram_credentials = ScramCredentials(base.store)
    await scram_credentials.open()
    tokens = await _open_tokens(base)
    return Documents(client_quotas, client_metrics_configs, features, scram_credentials, tokens)


async def _open_tokens(base: Foundation) -> DelegationTokens | None:
    """Raises StorageError."""
    settings = base.settings
    secret_key = settings.delegation_token_secret_key
    if secret_key is None or not secret_key.reveal():  # readable: it is checked before a node starts
        return None
    # Imported here: a broker without delegation tokens needs none of it.
    from fencepost.broker.security.delegation_token_store import DelegationTokens
    from fencepost.broker.security.delegation_tokens import Lifetimes

    lifetimes = Lifetimes(settings.delegation_token_max_lifetime_ms, settings.delegation_token_expiry_time_ms)
    tokens = DelegationTokens(base.store, secret_key.reveal(), lifetimes, base.clock)
    await tokens.open()
    remove_expired_tokens(base, tokens)
    return tokens


def client_metrics_service(base: Foundation, documents: Documents) -> Callable[[], ClientMetrics]:
    """Return the function that makes the client metrics at its first call."""

    @cache
    def service() -> ClientMetrics:
        # Imported here: a broker whose clients send no metrics needs none of it.
        from fencepost.broker.telemetry.client_metrics import ClientMetrics

        new_id = RandomIds(base.randomness).uuid
        return ClientMetrics(documents.client_metrics_configs, base.settings, base.clock, new_id)

    return service


async def _drain_problem(is_alone: bool, configs: Mapping[str, str], of_this_broker: bool) -> str | None:
    if configs.get("fencepost.drain", "false").lower() != "true":
        return None
    if is_alone:
        return "fencepost.drain: this broker is the only one, and nobody could lead what it hands over"
    if not of_this_broker:
        return "fencepost.drain: all brokers cannot hand over what they lead; name one of them"
    return None


async def judge_rights(base: Foundation, services: Services) -> None:
    """Ask for rights from the first request on if there is an authorizer. Raises StartError."""
    if base.settings.authorizer_class_name:
        await _authorize(base, services)
    else:
        _warn_of_open_listeners(base.settings)


async def _authorize(base: Foundation, services: Services) -> None:
    """Put the stored ACLs in force."""
    # Imported here: a broker without an authorizer needs none of it.
    from fencepost.broker.rights.rights_gate import RightsGate
    from fencepost.broker.security.acl_store import Acls
    from fencepost.broker.security.audit import Audit
    from fencepost.broker.security.authorizer import Authorizer
    from fencepost.broker.security.id_owners import IdOwners
    from fencepost.broker.security.principal import NODE, principal_problem

    settings = base.settings
    super_users = [name.strip() for name in settings.super_users.split(";") if name.strip()]
    for problem in filter(None, map(principal_problem, super_users)):
        raise StartError(f"super.users: {problem}; write User:name, and semicolons between several")
    try:
        id_owners = IdOwners(settings.fencepost_transactional_id_owners)
    except ValueError as error:
        raise StartError(f"fencepost.transactional.id.owners: {error}") from None
    authorizer = Authorizer(
        super_users=[*super_users, NODE],
        allows_without_rules=settings.allow_everyone_if_no_acl_found,
        id_owners=id_owners,
    )
    acls = services.acls = Acls(base.store, authorizer)
    await acls.open()
    if not (super_users or authorizer.allows_without_rules or acls.matching(lambda _: True)):
        log.warning(
            "nobody_has_rights",
            hint="there is no ACL, and nobody may add one: name super.users, or start with "
            "allow.everyone.if.no.acl.found=true, and add the ACLs",
        )
    services.gate = RightsGate(authorizer, Audit(base.clock, base.loggers))
    open_listeners = [
        listener.name for listener in parse_listeners(settings) if listener.protocol is SecurityProtocol.PLAINTEXT
    ]
    if open_listeners:
        log.warning(
            "clients_are_not_authenticated",
            listeners=open_listeners,
            hint="the principal of all of them is User:ANONYMOUS; ACLs and super.users can tell them apart by host "
            "only",
        )


def _warn_of_open_listeners(settings: Settings) -> None:
    """Warn of listeners on all interfaces whose clients need neither a name nor rights."""
    open_listeners = [
        listener.name
        for listener in parse_listeners(settings)
        if listener.host in ALL_INTERFACES
        and not listener.protocol.uses_sasl
        and (not listener.protocol.uses_tls or settings.for_listener("ssl.client.auth", listener.name) != "required")
    ]
    if open_listeners:
        log.warning(
            "listeners_are_open_to_everybody",
            listeners=open_listeners,
            hint="on all interfaces, without a log-in and without an authorizer; docs/security.md shows how to protect "
            "them, unless the network does",
        )
