"""The request log: one event for each request, at debug, while this logger or `broker.requests` has that level.

It is not switched on by the level of all loggers: it would bury the rest of the log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.events import PACKAGE, get_logger
from fencepost.broker.kernel.loggers import Loggers, LogLevel

if TYPE_CHECKING:
    from fencepost.broker.requests.api import RequestContext, RequestObserver
    from fencepost.broker.requests.routes import Api

log = get_logger(__name__)

NAMES: Final = (__name__.removeprefix(PACKAGE), "broker.requests")
"""The loggers whose level switches it on, the first that has one."""


def is_switched_on(loggers: Loggers) -> bool:
    """Whether requests are to be logged now."""
    level = next((own for name in NAMES if (own := loggers.own_level(name)) is not None), None)
    return level is not None and level <= LogLevel.DEBUG


class BegunRequest:
    """When a request began. begun_s: by the clock of `time.perf_counter`."""

    __slots__ = ("begun_s",)

    def __init__(self) -> None:
        self.begun_s = time.perf_counter()


class RequestLog:
    """An observer that logs every request when it is answered. It may be put in place while requests are under way."""

    then: RequestObserver | None = None

    def begun(self, api: Api, context: RequestContext, request: Any) -> None:
        if getattr(context, "observation", None) is None:
            context.observation = BegunRequest()

    def waits(self, context: RequestContext) -> None:
        """Do nothing: only the whole duration is logged."""

    def answered(self, api: Api, context: RequestContext, requests_count: int, answer: Any) -> None:
        observation = getattr(context, "observation", None)
        duration_ms = None
        if observation is not None:
            duration_ms = round((time.perf_counter() - observation.begun_s) * 1000, 3)
        fields = {} if requests_count == 1 else {"requests": requests_count}
        log.debug(
            "request_answered",
            api=api.name,
            version=context.api_version,
            client_id=context.client_id,
            principal=context.connection.principal,
            client=context.client_host,
            duration_ms=duration_ms,
            **fields,
        )
