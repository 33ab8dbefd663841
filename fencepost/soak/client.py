"""One Python client process of the soak: python -m fencepost.soak.client '{"kind": …}' (see `Order`).

It writes one line of JSON to standard output twice a second and at its end, stops cleanly at SIGTERM, and logs the
stacks of all its threads at SIGUSR1.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from fencepost.history.writer import HistoryWriter
from fencepost.soak.plan import ExitCode, Plan, group_id
from fencepost.soak.roles import Client, Counters, FencedError, Library, SessionLostError

REPORT_INTERVAL_S = 0.5


@dataclass(frozen=True)
class Order:
    """name: unique name of this process in the soak. role, transactional_id: those of its slot.

    history_path: a history; services write another kind of log there, and their rate is that of each.
    database_urls, life, is_last: parameters of services alone, see `two_phase_service.Setting`.
    """

    name: str
    kind: str
    role: str
    transactional_id: str
    bootstrap_servers: str
    history_path: str
    kinds: list[str]
    rate: float
    seed: int
    database_urls: list[str]
    life: int
    is_last: bool


def main() -> int:
    faulthandler.register(signal.SIGUSR1)
    # The broker is stopped on purpose; kafka-python logs each attempt to connect to it.
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    order = Order(**json.loads(sys.argv[1]))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    counters = Counters()
    reporting = threading.Thread(target=_report, args=(counters, stop), daemon=True)
    reporting.start()
    exit_code, reason = _work(order, counters, stop)
    _say({**vars(counters), "ended": exit_code.name, "reason": reason})
    # Do not wait for the library's requests in flight.
    os._exit(exit_code)


def _work(order: Order, counters: Counters, stop: threading.Event) -> tuple[ExitCode, str]:
    chance = random.Random(f"{order.seed} {order.name}")
    try:
        if order.role == "service":
            _serve(order, chance, counters, stop)
        else:
            _transact(order, chance, counters, stop)
    except FencedError as error:
        return ExitCode.FENCED, str(error)
    except SessionLostError as error:
        return ExitCode.SESSION_LOST, str(error)
    except Exception as error:  # noqa: BLE001  # the soak reports any exception
        traceback.print_exc()
        return ExitCode.FAILED, repr(error)
    return ExitCode.STOPPED, ""


def _serve(order: Order, chance: random.Random, counters: Counters, stop: threading.Event) -> None:
    from fencepost.soak.two_phase_service import Setting, TransferService

    setting = Setting(
        kind=order.kind,
        name=order.transactional_id,
        bootstrap_servers=order.bootstrap_servers,
        database_urls=order.database_urls,
        life=order.life,
        log=Path(order.history_path),
        rate=order.rate,
        is_last=order.is_last,
    )
    TransferService(setting, chance, counters, stop).run()


def _transact(order: Order, chance: random.Random, counters: Counters, stop: threading.Event) -> None:
    history = HistoryWriter.open(order.history_path).client(
        order.name,
        transactional_id=None if order.role == "verifier" else order.transactional_id,
        group_id=group_id(order.kind) if order.role == "transformer" else None,
        isolation_level="read_committed",
    )
    plan = Plan(kinds=order.kinds, rate=order.rate, seed=order.seed)
    client = Client(_library(order), history, plan, chance, counters, stop)
    client.run(order.kind, order.role, order.transactional_id)


def _library(order: Order) -> Library:
    # Each process imports only the library that it uses.
    if order.kind == "kafka-python":
        from fencepost.soak.with_kafka_python import KafkaPython

        return KafkaPython(order.bootstrap_servers)
    from fencepost.soak.with_confluent_kafka import ConfluentKafka

    return ConfluentKafka(order.bootstrap_servers)


def _report(counters: Counters, stop: threading.Event) -> None:
    while not stop.wait(REPORT_INTERVAL_S):
        _say(vars(counters))


def _say(report: dict[str, object]) -> None:
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
