"""The brokers of a program, by their ids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost import Broker
from fencepost.testing.errors import MisuseError
from fencepost.testing.http import brokers as module
from fencepost.testing.http.brokers import Brokers, NoSuchBrokerError, NoSuchFaultError, TooManyBrokersError
from fencepost.testing.http.kinds import InputError
from tests.support.held_resources import held


def test_a_hundred_brokers_are_there_at_once_and_one_more_is_refused() -> None:
    brokers = Brokers()
    try:
        created = [brokers.create({}, in_process=False) for _ in range(module.MOST_BROKERS)]
        assert len({one.broker.bootstrap_servers for one in created}) == 100
        with pytest.raises(TooManyBrokersError, match="100 brokers are there already"):
            brokers.create({}, in_process=False)
        assert created[99].broker.topics() == {}
        brokers.close(created[0].id)
        assert brokers.create({}, in_process=False).id not in {one.id for one in created}
    finally:
        brokers.close_all()
    assert len(brokers) == 0


def test_a_thousand_brokers_one_after_the_other_leave_nothing() -> None:
    brokers = Brokers()
    before = held()
    for _ in range(1000):
        brokers.close(brokers.create({}, in_process=False).id)
    assert held().more_than(before) == []
    assert brokers.all() == []


def test_a_closed_broker_cannot_be_found_or_closed_again() -> None:
    brokers = Brokers()
    created = brokers.create({}, in_process=False)
    assert brokers.find(created.id) is created
    assert brokers.close(created.id) == {"never_fired": [], "description": None, "kept": None}
    for again in (brokers.find, brokers.close):
        with pytest.raises(NoSuchBrokerError):
            again(created.id)
    assert not created.broker.is_running


def test_a_wait_for_a_fault_ends_when_its_broker_is_closed() -> None:
    brokers = Brokers()
    for in_process in (False, True):
        created = brokers.create({}, in_process=in_process)
        fault = created.broker.hold("Fetch", optional=True)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(fault.wait_until_fired, 1, timeout=300)
            brokers.close(created.id)
            with pytest.raises(MisuseError, match="the broker was closed meanwhile: hold"):
                waiting.result(60)


def test_a_broker_that_was_closed_is_not_started_by_an_operation_that_waited_for_it() -> None:
    brokers = Brokers()
    created = brokers.create({}, in_process=False)
    brokers.close(created.id)
    with pytest.raises(NoSuchBrokerError, match="it was closed meanwhile"), created.alone():
        created.broker.restart()
    assert not created.broker.is_running


def test_a_broker_that_does_not_start_leaves_its_place_free(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    monkeypatch.setattr(module, "MOST_BROKERS", 1)
    for _ in range(3):
        with pytest.raises(InputError, match="unknown setting"):
            brokers.create({"no.such": 1}, in_process=False)
    created = brokers.create({}, in_process=False)
    brokers.close(created.id)


def test_after_the_end_none_is_created() -> None:
    brokers = Brokers()
    brokers.close_all()
    with pytest.raises(NoSuchBrokerError, match="the program is ending"):
        brokers.create({}, in_process=False)


def test_a_broker_that_was_starting_at_the_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    started = []

    def start(self: Broker) -> None:
        started.append(self)
        brokers.close_all()

    monkeypatch.setattr(Broker, "start", start)
    with pytest.raises(NoSuchBrokerError, match="the program is ending"):
        brokers.create({}, in_process=False)
    assert len(started) == 1
    assert brokers.all() == []


def test_faults_have_numbers_in_their_order() -> None:
    brokers = Brokers()
    created = brokers.create({}, in_process=False)
    first, second = (created.broker.fail("EndTxn", 51, optional=True) for _ in range(2))
    assert (created.number_of(first), created.number_of(second)) == (1, 2)
    assert created.fault(2) is second
    for number in (0, 3, -1):
        with pytest.raises(NoSuchFaultError, match="it has 2, numbered from 1"):
            created.fault(number)
    with pytest.raises(MisuseError, match="process=true"):
        _ = created.process
    brokers.close(created.id)


def test_a_frozen_process_is_closed_and_its_faults_are_reported() -> None:
    brokers = Brokers()
    created = brokers.create({}, in_process=True)
    created.broker.fail("EndTxn", "NOT_COORDINATOR")
    created.process.freeze()
    closed = brokers.close(created.id)
    assert len(closed["never_fired"]) == 1
    assert not created.broker.is_running
