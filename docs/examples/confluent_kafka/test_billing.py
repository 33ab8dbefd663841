"""What must hold whatever happens: one bill for each order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from billing import Billing
from confluent_kafka import KafkaError, KafkaException


@pytest.fixture
def billing(fencepost) -> Iterator[Billing]:
    fencepost.topic("orders")
    fencepost.topic("bills")
    fencepost.produce("orders", "tea")
    service = Billing(fencepost.bootstrap_servers)
    yield service
    service.close()


def bills(fencepost) -> list[bytes | None]:
    return [record.value for record in fencepost.records("bills")]


def test_each_order_is_billed(fencepost, billing: Billing) -> None:
    assert billing.bill_next()
    assert bills(fencepost) == [b"bill for tea"]
    fencepost.wait_for_lag("billing")


def test_a_commit_whose_reply_is_lost_is_not_done_twice(fencepost, billing: Billing) -> None:
    lost = fencepost.disconnect("EndTxn")
    assert billing.bill_next()
    assert lost.fired == 1
    assert bills(fencepost) == [b"bill for tea"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_broker_that_crashes_in_the_commit_has_the_bill_once(fencepost, billing: Billing, durable: bool) -> None:
    crash = fencepost.crash_after("EndTxn", durable=durable)  # with only the reply lost, or the commit, too
    working = threading.Thread(target=billing.bill_next)
    working.start()
    crash.wait_until_fired()
    fencepost.restart()
    working.join(30)
    assert bills(fencepost) == [b"bill for tea"]


def test_a_zombie_bills_nothing(fencepost, billing: Billing) -> None:
    with fencepost.hold("TxnOffsetCommit", on="request") as held:  # it stalls in the middle of its transaction
        failures: list[KafkaException] = []

        def bill() -> None:
            try:
                billing.bill_next()
            except KafkaException as error:
                failures.append(error)

        zombie = threading.Thread(target=bill)
        zombie.start()
        held.wait_until_fired()
        fencepost.fence("billing-1")  # its successor starts
    zombie.join(30)
    assert [failure.args[0].code() for failure in failures] == [KafkaError._FENCED]
    assert bills(fencepost) == []
