"""Transactions that no coordinator knows, and the refusal to tear one that a coordinator knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.console.running import RunningConsole, change, csrf_in, eventually, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.hanging_transaction import leave_hanging

pytestmark = pytest.mark.integration


def test_a_hanging_transaction_is_named_and_aborted_and_a_live_one_is_not(tmp_path: Path) -> None:
    """Without verification an old client's late write opens a transaction that nobody will ever end."""
    settings = {"num.partitions": "1", "transaction.partition.verification.enable": "false"}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        RunningConsole(options_for(broker)) as console,
        console.browser() as browser,
    ):
        alive = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "alive", "log_level": 0})
        alive.init_transactions(60)
        alive.begin_transaction()
        alive.produce("live", "held")
        alive.flush(60)
        plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        plain.produce("orders", "before")
        plain.flush(60)
        leave_hanging(broker.host, broker.port, "orders")

        assert "unknown to coordinators" in text_of(browser.get("/stuck").text)
        page = text_of(browser.get("/stuck/orders/0").text)
        assert "The transaction of producer 5000 hangs: no coordinator knows it" in page
        fields = {"topic": "orders", "partition": "0", "producer_id": "5000"}
        said = text_of(change(browser, "abort-hanging", "orders-0", **fields).text)
        assert "The hanging transaction of producer 5000 on orders-0 was aborted." in said
        eventually(browser, "/stuck/orders/0", "orders-0 is not stuck")

        (known,) = get_json(browser, "/stuck/live/0")["facts"]["open"]
        form = {"csrf": csrf_in(browser.get("/topics").text), "topic": "live", "partition": "0"}
        form |= {"producer_id": str(known["producer_id"]), "typed_name": "live-0"}
        refused = browser.post("/change/abort-hanging", data=form)
        assert refused.status_code == 422
        assert "this transaction does not hang" in text_of(refused.text).lower()
        alive.commit_transaction(60)
        eventually(browser, "/stuck/live/0", "live-0 is not stuck")
