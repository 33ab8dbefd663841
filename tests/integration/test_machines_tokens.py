"""Delegation tokens on brokers that share two stores: each change counts at all of them when its reply arrives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import until
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer
from tests.support.token_clients import PLAIN, SETTINGS, TokenClients

pytestmark = pytest.mark.integration

MACHINES_LOG_IN = {
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} username="node" password="node-secret" '
    'user_node="node-secret" user_alice="alice-secret";',
}


@pytest.fixture
def machines(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machines]:
    """Three brokers whose clients log in, on a listener for each."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    made = Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=SETTINGS | MACHINES_LOG_IN)
    for number, machine in made.machines.items():
        machine.config = tmp_path / f"server-{number}.properties"
        machine.config.write_text(
            f"listeners=CLIENTS://{machine.bootstrap}\nlistener.security.protocol.map=CLIENTS:SASL_PLAINTEXT\n"
        )
    with made as machines:
        yield machines
        assert "Traceback" not in machines.output, machines.output


def listed(clients: TokenClients, address: str) -> dict[str, Any]:
    return {token["token_id"]: token for token in clients.as_alice(address, "tokens", "list")}


def test_a_token_counts_at_every_machine_when_its_creation_returns_and_at_none_after_its_end(
    machines: Machines, tmp_path: Path
) -> None:
    clients = TokenClients(tmp_path)
    addresses = [machine.bootstrap for machine in machines.machines.values()]
    for number, at in enumerate(addresses):
        token = clients.as_alice(at, "tokens", "create")
        for address in addresses:
            assert clients.outcome(token, address) == "counts"
        elsewhere = addresses[(number + 1) % len(addresses)]
        renewed = clients.as_alice(elsewhere, "tokens", "renew", token["token_id"], "--period", "3600000")
        assert renewed["expires"] < token["expires"]
        assert [listed(clients, address)[token["token_id"]]["expires"] for address in addresses] == [
            renewed["expires"]
        ] * len(addresses)
        clients.as_alice(addresses[number - 1], "tokens", "expire", token["token_id"], "--yes")
        for address in addresses:
            assert clients.outcome(token, address) == "refused"
            assert token["token_id"] not in listed(clients, address)


def test_tokens_are_what_they_were_after_all_machines_were_killed(machines: Machines, tmp_path: Path) -> None:
    clients = TokenClients(tmp_path)
    kept = clients.as_alice(machines[1].bootstrap, "tokens", "create")
    ended = clients.as_alice(machines[2].bootstrap, "tokens", "create")
    clients.as_alice(machines[3].bootstrap, "tokens", "expire", ended["token_id"], "--yes")
    before = listed(clients, machines[1].bootstrap)
    assert before.keys() == {kept["token_id"]}
    for machine in machines.machines.values():
        machine.kill()
    for machine in machines.machines.values():
        machine.start()
    for machine in machines.machines.values():
        assert listed(clients, machine.bootstrap) == before
        assert clients.outcome(kept, machine.bootstrap) == "counts"
        assert clients.outcome(ended, machine.bootstrap) == "refused"


def test_a_token_counts_at_the_others_while_a_machine_is_lost_and_there_when_it_is_back(
    machines: Machines, tmp_path: Path
) -> None:
    clients = TokenClients(tmp_path)
    ended = clients.as_alice(machines[1].bootstrap, "tokens", "create")
    machines[3].kill()
    token = clients.as_alice(machines[1].bootstrap, "tokens", "create")
    clients.as_alice(machines[2].bootstrap, "tokens", "expire", ended["token_id"], "--yes")
    for number in (1, 2):
        assert clients.outcome(token, machines[number].bootstrap) == "counts"
        assert clients.outcome(ended, machines[number].bootstrap) == "refused"
    machines[3].start()
    assert clients.outcome(token, machines[3].bootstrap) == "counts"
    assert clients.outcome(ended, machines[3].bootstrap) == "refused"


def test_a_frozen_machine_knows_no_ended_token_when_it_wakes_up(machines: Machines, tmp_path: Path) -> None:
    clients = TokenClients(tmp_path)
    token = clients.as_alice(machines[3].bootstrap, "tokens", "create")
    machines[3].freeze()
    try:
        clients.as_alice(machines[1].bootstrap, "tokens", "expire", token["token_id"], "--yes")
    finally:
        machines[3].wake()
    outcomes: list[str] = []

    def is_refused() -> bool:
        outcomes.append(clients.outcome(token, machines[3].bootstrap))
        return outcomes[-1] == "refused"

    until(is_refused)  # it may answer nobody while it hears from the others what has changed
    assert "counts" not in outcomes
