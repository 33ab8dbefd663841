"""Delegation tokens in a broker of several processes: each change counts at all of them when its reply arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.soak.free_port import free_ports
from tests.support.broker_processes import BrokerProcesses
from tests.support.token_clients import SETTINGS, TokenClients

pytestmark = pytest.mark.integration

COUNT = 3


@pytest.mark.timeout(300)
def test_a_token_counts_at_every_process_when_its_creation_returns_and_at_none_after_its_end(tmp_path: Path) -> None:
    broker = BrokerProcesses(tmp_path / "data", COUNT, settings=SETTINGS)
    first = free_ports(COUNT)
    broker.config = tmp_path / "server.properties"
    broker.config.write_text(
        f"listeners=CLIENTS://127.0.0.1:{first}\nlistener.security.protocol.map=CLIENTS:SASL_PLAINTEXT\n"
    )
    broker.port = first
    addresses = [f"127.0.0.1:{port}" for port in range(first, first + COUNT)]
    clients = TokenClients(tmp_path)
    with broker:
        for number, at in enumerate(addresses):
            token = clients.as_alice(at, "tokens", "create")
            for address in addresses:
                assert clients.outcome(token, address) == "counts"
            clients.as_alice(addresses[(number + 1) % COUNT], "tokens", "expire", token["token_id"], "--yes")
            for address in addresses:
                assert clients.outcome(token, address) == "refused"
        assert "Traceback" not in broker.output, broker.output
