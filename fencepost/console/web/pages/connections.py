"""Connections: those that are open, as the HTTP listeners of brokers list them. Kafka's protocol lists none: there only
members of groups say who they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.console.broker_http import HttpFailedError
from fencepost.console.reading.groups import GroupState, describe_groups, groups_of
from fencepost.console.reading.lag_table import LONGEST_WAIT_S
from fencepost.console.reading.sharing import Reads
from fencepost.console.reading.transactions import ListedTransaction, transactions_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.stuck import Client

MOST_GROUPS: Final = 200
MOST_PRODUCERS: Final = 100
AT_ONCE: Final = 8


@dataclass(frozen=True)
class ConnectedClient:
    """A client and its role: a member of a group, or the producer of a transactional id."""

    client_id: str
    address: str
    software: str
    principal: str
    is_connected: bool | None
    last_seen_ms: int
    role: str
    name: str


async def connections(visit: Visit) -> Page:
    reads = visit.reads
    answer = await reads.ask("members", lambda cluster: _read_members(reads, cluster))
    clients, with_members = list(answer.value.clients), answer.value.groups_count
    listeners: list[Any] = []
    opened: list[Any] = []
    missing = ""
    try:
        opened = await visit.http.get("/v1/connections")
        listeners = [listener for node in await visit.http.get("/v1/node") for listener in node.get("listeners", [])]
        clients += await _producers(visit, answer.value.transactions)
    except HttpFailedError as error:
        missing = str(error)
    listing = Listing(
        clients,
        visit.parameters,
        text_of=lambda one: f"{one.client_id} {one.address} {one.principal} {one.name} {one.software}",
        orders={
            "client": lambda one: one.client_id,
            "address": lambda one: one.address,
            "seen": lambda one: one.last_seen_ms,
            "name": lambda one: (one.role, one.name),
        },
        first_order="client",
    )
    shown = [connection for broker in opened for connection in broker.get("connections", [])]
    data = {
        "opened": Listing(
            shown,
            visit.parameters,
            text_of=lambda one: f"{one['client_id']} {one['address']} {one['principal']} {one['software_name']}",
            orders={
                "client": lambda one: one["client_id"] or "",
                "address": lambda one: (one["address"], one["port"]),
                "seen": lambda one: one["last_activity_ms"],
                "since": lambda one: one["opened_ms"],
            },
            first_order="address",
        ),
        "opened_count": sum(broker.get("connections_count", 0) for broker in opened),
        "listing": listing,
        "listeners": listeners,
        "missing": missing,
        "left_out": max(0, with_members - MOST_GROUPS),
        "left_out_ids": max(0, len(answer.value.transactions) - MOST_PRODUCERS),
    }
    return Page("connections.html", "Connections", data, menu="connections", refreshes=True, age_s=answer.age_s)


@dataclass(frozen=True)
class Members:
    """Members of groups, the number of groups that have any, and all transactional ids."""

    clients: Sequence[ConnectedClient]
    groups_count: int
    transactions: Sequence[ListedTransaction]


async def _read_members(reads: Reads, cluster: Cluster) -> Members:
    groups, transactions = await asyncio.gather(
        groups_of(reads, LONGEST_WAIT_S), transactions_of(reads, (), LONGEST_WAIT_S)
    )
    with_members = [one for one in groups.value.listed if one.state not in ("Empty", "Dead")]
    clients = [
        ConnectedClient(member.client_id, member.host, "", "", True, -1, "group", state.group.group_id)
        for state in await describe_groups(cluster, with_members[:MOST_GROUPS])
        if isinstance(state, GroupState)
        for member in state.members
    ]
    return Members(clients, len(with_members), transactions.value.listed)


async def _producers(visit: Visit, listed: Sequence[ListedTransaction]) -> list[ConnectedClient]:
    """Clients of transactional ids, the open ones first."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(one: ListedTransaction) -> Client | None:
        async with turn:
            return (await visit.http.client_of(one.producer_id)).client

    chosen = sorted(listed, key=lambda one: (not one.is_open, one.transactional_id))[:MOST_PRODUCERS]
    found = await asyncio.gather(*(ask(one) for one in chosen))
    return [
        ConnectedClient(
            client.client_id,
            client.address,
            client.software,
            client.principal,
            client.is_connected,
            client.last_seen_ms,
            "transaction",
            one.transactional_id,
        )
        for one, client in zip(chosen, found, strict=True)
        if client is not None
    ]
