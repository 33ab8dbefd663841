"""How each operation is carried out: by the method of its name, whose result becomes JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import version
from typing import Any

from fencepost.testing.http import answers
from fencepost.testing.http.answers import Json, content
from fencepost.testing.http.brokers import MOST_BROKERS, Brokers, TestBroker

Arguments = Mapping[str, Any]


def _of_broker(function: Callable[[TestBroker, dict[str, Any]], Json]) -> Callable[[Brokers, Arguments], Json]:
    """Give a function the broker that the arguments name, and the arguments without it."""

    @wraps(function)
    def run(all_brokers: Brokers, arguments: Arguments) -> Json:
        left = dict(arguments)
        return function(all_brokers.find(left.pop("broker")), left)

    return run


# Brokers


def program(all_brokers: Brokers, _: Arguments) -> Json:
    return {
        "version": version("fencepost"),
        "pid": os.getpid(),
        "brokers": len(all_brokers),
        "most_brokers": MOST_BROKERS,
    }


def create_broker(all_brokers: Brokers, arguments: Arguments) -> Json:
    return all_brokers.create(arguments["settings"] or {}, in_process=arguments["process"]).state()


def brokers(all_brokers: Brokers, _: Arguments) -> Json:
    return {"brokers": [one.state() for one in all_brokers.all()]}


@_of_broker
def broker(of: TestBroker, _: dict[str, Any]) -> Json:
    return of.state()


def close_broker(all_brokers: Brokers, arguments: Arguments) -> Json:
    return all_brokers.close(arguments["broker"], keep=arguments["keep"])


@_of_broker
def crash(of: TestBroker, _: dict[str, Any]) -> Json:
    with of.alone():
        of.broker.crash()
    return of.state()


@_of_broker
def stop(of: TestBroker, _: dict[str, Any]) -> Json:
    with of.alone():
        of.broker.stop()
    return of.state()


@_of_broker
def restart(of: TestBroker, _: dict[str, Any]) -> Json:
    with of.alone():
        of.broker.restart()
    return of.state()


@_of_broker
def freeze(of: TestBroker, _: dict[str, Any]) -> Json:
    with of.alone():
        of.process.freeze()
    return of.state()


@_of_broker
def thaw(of: TestBroker, _: dict[str, Any]) -> Json:
    with of.alone():
        of.process.thaw()
    return of.state()


# Topics, records, transactions, groups


@_of_broker
def topic(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return {"name": of.broker.topic(arguments.pop("name"), **arguments)}


@_of_broker
def topics(of: TestBroker, _: dict[str, Any]) -> Json:
    return {"topics": of.broker.topics()}


@_of_broker
def delete_topic(of: TestBroker, arguments: dict[str, Any]) -> Json:
    of.broker.delete_topic(arguments["topic"])
    return {}


@_of_broker
def produce(of: TestBroker, arguments: dict[str, Any]) -> Json:
    encoding = arguments["encoding"]
    values = [content(text, encoding, f"values[{index}]") for index, text in enumerate(arguments["values"])]
    headers = {
        name: content(text, encoding, f"headers[{name!r}]") for name, text in (arguments["headers"] or {}).items()
    }
    offsets = of.broker.produce(
        arguments["topic"],
        *values,
        key=content(arguments["key"], encoding, "key"),
        partition=arguments["partition"],
        headers=headers,
        timestamp_ms=arguments["timestamp_ms"],
    )
    return {"offsets": offsets}


@_of_broker
def records(of: TestBroker, arguments: dict[str, Any]) -> Json:
    skip, limit, encoding = arguments.pop("skip"), arguments.pop("limit"), arguments.pop("encoding")
    found = of.broker.records(arguments.pop("topic"), **arguments)
    return answers.page_of_records(found, skip, limit, encoding)


@_of_broker
def transactions(of: TestBroker, _: dict[str, Any]) -> Json:
    return {"transactions": of.broker.transactions()}


@_of_broker
def transaction(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return answers.transaction(of.broker.transaction(arguments["transactional_id"]))


@_of_broker
def fence(of: TestBroker, arguments: dict[str, Any]) -> Json:
    producer_id, producer_epoch = of.broker.fence(arguments["transactional_id"])
    return {"producer_id": producer_id, "producer_epoch": producer_epoch}


@_of_broker
def groups(of: TestBroker, _: dict[str, Any]) -> Json:
    return {"groups": of.broker.groups()}


@_of_broker
def group(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return answers.group(of.broker.group(arguments["group_id"]))


@_of_broker
def set_offset(of: TestBroker, arguments: dict[str, Any]) -> Json:
    of.broker.set_offset(**arguments)
    return {}


@_of_broker
def wait_for_lag(of: TestBroker, arguments: dict[str, Any]) -> Json:
    of.broker.wait_for_lag(**arguments)
    return {}


# Requests, the clock, the broker's view


@_of_broker
def requests(of: TestBroker, arguments: dict[str, Any]) -> Json:
    limit, with_fields = arguments.pop("limit"), arguments.pop("fields")
    found = of.broker.requests(**arguments)
    return {
        "requests": [answers.request(seen, with_fields=with_fields) for seen in found[-limit:]],
        "total": len(found),
    }


@_of_broker
def advance(of: TestBroker, arguments: dict[str, Any]) -> Json:
    of.broker.advance(**arguments)
    return {}


@_of_broker
def describe(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return {"text": of.broker.describe(**arguments)}


# Faults


def _placing(name: str) -> Callable[[Brokers, Arguments], Json]:
    """The operation that sets a fault by the method of a name."""

    @_of_broker
    def place(of: TestBroker, arguments: dict[str, Any]) -> Json:
        placed = getattr(of.broker, name)(**arguments)
        return answers.fault(of.number_of(placed), placed)

    return place


fail = _placing("fail")
delay = _placing("delay")
hold = _placing("hold")
disconnect = _placing("disconnect")
crash_after = _placing("crash_after")


@_of_broker
def faults(of: TestBroker, _: dict[str, Any]) -> Json:
    return {"faults": [answers.fault(number, one) for number, one in enumerate(of.broker.faults, 1)]}


@_of_broker
def fault(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return answers.fault(arguments["fault"], of.fault(arguments["fault"]))


@_of_broker
def wait_until_fired(of: TestBroker, arguments: dict[str, Any]) -> Json:
    found = of.fault(arguments["fault"])
    found.wait_until_fired(arguments["count"], timeout=arguments["timeout"])
    return answers.fault(arguments["fault"], found)


@_of_broker
def release(of: TestBroker, arguments: dict[str, Any]) -> Json:
    return {"released": of.fault(arguments["fault"]).release()}


@_of_broker
def remove(of: TestBroker, arguments: dict[str, Any]) -> Json:
    found = of.fault(arguments["fault"])
    found.remove()
    return answers.fault(arguments["fault"], found)
