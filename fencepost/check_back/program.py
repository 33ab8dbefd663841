"""The check-back beside a Kafka: its parts, made of the settings, and its log lines on standard output."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.check_back.kafka_topics import KafkaJournal, KafkaRecords
from fencepost.check_back.kafka_transactions import KafkaTransactions
from fencepost.check_back.log_lines import line_of
from fencepost.check_back.records import Entry
from fencepost.check_back.resolvers import resolver_for
from fencepost.check_back.schedule import figures_of
from fencepost.check_back.service import CheckBack
from fencepost.check_back.settings import ResolverSettings
from fencepost.client.cluster import Cluster
from fencepost.client.options import addresses_of, options_of

POLL_S: Final = 2.0
"""Between looks at the open transactions."""
FIGURES_S: Final = 60.0


async def run(
    bootstrap: str, options: Mapping[str, Any], settings: Sequence[ResolverSettings], *, as_json: bool
) -> None:
    """Check back until SIGTERM or SIGINT.

    options: those of the Coordinator, beside the servers. Raises ValueError for a resolver that cannot be made; any
    other exception is unexpected, and the supervisor of the process restarts it.
    """
    lines = Lines(as_json=as_json)
    globs = [glob for one in settings for glob in one.ids]
    clients = addresses_of(bootstrap), options_of(options)
    records = KafkaRecords(Cluster(*clients), max(one.timeout_ms for one in settings) / 1000)
    resolvers = {one.name: resolver_for(one, records) for one in settings}
    transactions = KafkaTransactions(bootstrap, globs, **options)
    journal = KafkaJournal(Cluster(*clients))
    service = CheckBack(settings, resolvers, transactions, journal, lines, now_ms=_now_ms, poll_s=POLL_S)
    lines.write("info", "check_back_started", {"resolvers": [one.name for one in settings], "bootstrap": bootstrap})
    try:
        with suppress(asyncio.CancelledError):
            await _until_stopped(service, lines)
        lines.write("info", "check_back_stopped", figures_of(service.schedule, _now_ms()))
    finally:
        for resolver in resolvers.values():
            await resolver.close()
        await transactions.close()
        await journal.close()
        await records.close()


async def _until_stopped(service: CheckBack, lines: Lines) -> None:
    async with asyncio.TaskGroup() as tasks:
        work = asyncio.current_task()
        assert work is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        tasks.create_task(service.run())
        while True:
            await asyncio.sleep(FIGURES_S)
            lines.write("info", "check_back_figures", figures_of(service.schedule, _now_ms()))


def _now_ms() -> int:
    return int(time.time() * 1000)


class Lines:
    """Log lines on standard output. See `fencepost.check_back.ports.Observer`."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def recorded(self, entry: Entry) -> None:
        line = line_of(entry)
        if line is not None:
            self.write(line.level.value, line.event, line.fields)

    def unavailable(self, what: str, reason: str) -> None:
        self.write("warning", "check_back_waits", {"what": what, "reason": reason})

    def left_out(self, what: str) -> None:
        self.write("warning", "check_back_records_left_out", {"what": what})

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            text = json.dumps({"timestamp": now, "level": level, "event": event, **fields})
        else:
            text = " ".join([now, f"[{level}]", event, *(f"{name}={value}" for name, value in fields.items())])
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
