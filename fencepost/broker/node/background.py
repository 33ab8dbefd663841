"""Background work of a node: the sweeps of its logs, and the effects of changed features and loggers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.requests.api import Services
from fencepost.broker.requests.request_log import RequestLog, is_switched_on
from fencepost.broker.storage.disk import StorageError

if TYPE_CHECKING:
    from fencepost.broker.security.delegation_token_store import DelegationTokens

log = get_logger(__name__)

SWEEP_TIMER = Place("timer of the sweeps", Policy.RETRY)
TOKEN_SWEEP = Place("removal of expired delegation tokens", Policy.RETRY)

LONGEST_SWEEP_INTERVAL_S = 5.0
LONGEST_SWEEP_ROUND_S = 60.0


def sweep_regularly(base: Foundation, logs: LogDirectory) -> None:
    """Start the timer of the sweeps: retention, rolling by time and expiry of producers.

    A sweep covers a share of the logs and of the deleted files, so sweeps run more often than
    `log.retention.check.interval.ms`; all logs are covered within that time, and within a minute. Retention and
    rolling still wait for the interval, counted for each log from its creation, opening or last check.
    """
    loop = asyncio.get_running_loop()
    retention_interval_ms = base.settings.log_retention_check_interval_ms
    round_s = min(retention_interval_ms / 1000, LONGEST_SWEEP_ROUND_S)
    interval_s = min(round_s, LONGEST_SWEEP_INTERVAL_S)
    sweeps_per_round = int(round_s / interval_s)
    timer: asyncio.TimerHandle

    def sweep() -> None:
        nonlocal timer
        timer = loop.call_later(interval_s, swept)  # first, so that the sweeps continue if this one fails
        try:
            logs.sweep(
                base.clock.now_ms(),
                sweeps_per_round=sweeps_per_round,
                retention_interval_ms=retention_interval_ms,
            )
        except StorageError as error:
            log.error("sweep_failed", reason=str(error))  # noqa: TRY400  # the reason says it all

    swept = SWEEP_TIMER.callback(sweep)
    timer = loop.call_later(interval_s, swept)
    base.cleanup.callback(lambda: timer.cancel())


def remove_expired_tokens(base: Foundation, tokens: DelegationTokens) -> None:
    """Remove delegation tokens that have expired, on every node: whichever comes first."""
    interval_s = base.settings.delegation_token_expiry_check_interval_ms / 1000

    async def sweep() -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await tokens.remove_expired()
            except StorageError as error:
                log.warning("expired_tokens_not_removed", reason=str(error))

    sweeping = TOKEN_SWEEP.start_retrying(sweep)
    base.cleanup.push_async_callback(end_tasks, sweeping)


def log_requests(base: Foundation, of_listeners: Sequence[Services]) -> None:
    """Log requests while the level of their logger asks for it."""
    loggers, request_log = base.loggers, RequestLog()

    def changed() -> None:
        wanted = request_log if is_switched_on(loggers) else None
        for services in of_listeners:
            if services.observer is None or services.observer is request_log:
                services.observer = wanted
            else:
                services.observer.then = wanted

    changed()
    loggers.on_changed.append(changed)
    base.cleanup.callback(partial(loggers.on_changed.remove, changed))
