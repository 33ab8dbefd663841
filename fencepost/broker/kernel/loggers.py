"""Levels of the broker's loggers, one for each module that logs. Clients read and set them while the broker runs.

They are in memory only: after a restart, the level of the settings applies to all.
Source: KIP-412; Kafka's RuntimeLoggerManager and Log4jCoreController.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

from fencepost.broker.config import Alteration, AlterationRefusal, AlterOperation
from fencepost.broker.kernel.events import PACKAGE, get_logger
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

ROOT = "root"


class LogLevel(IntEnum):
    """Kafka's levels, with the numbers of Python's. Nothing here is logged as TRACE."""

    TRACE = 5
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50


class Loggers:
    """The level of each logger: its own, else that of the nearest package above that has one (`broker.log` for
    `broker.log.compaction.cleaner`), else the root's.

    on_changed: called after a level was set or removed.
    """

    def __init__(self, root_level: LogLevel = LogLevel.INFO) -> None:
        self.on_changed: list[Callable[[], None]] = []
        self._own = {ROOT: root_level}
        self._effective: dict[str, LogLevel] = {}

    def names(self) -> list[str]:
        """The root, and the modules and packages that log."""
        names = {above for module in _modules_that_log() for above in (module, *_packages_above(module))}
        return [ROOT, *sorted(names)]

    def own_level(self, name: str) -> LogLevel | None:
        """The level that was set for this logger itself; None if those above apply."""
        return self._own.get(name)

    def level(self, name: str) -> LogLevel:
        """The effective level of a logger, known or not."""
        found = self._effective.get(name)
        if found is None:
            owner = next(above for above in (name, *_packages_above(name), ROOT) if above in self._own)
            found = self._effective[name] = self._own[owner]
        return found

    def alter(
        self, node_id: int, resource_name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> AlterationRefusal | None:
        """Set levels, or remove them so that those above apply; all of them, or none.

        Refuses: INVALID_REQUEST (not the loggers of this node, a list operation or none that exists, no level for the
        root), INVALID_CONFIG (an unknown logger or level).
        """
        refusal = _not_this_node(node_id, resource_name) or self._refusal(alterations)
        if refusal is None and not validate_only:
            for name, operation, value in alterations:
                if operation == AlterOperation.SET:
                    self._own[name] = LogLevel[str(value)]
                else:
                    self._own.pop(name, None)
                self._effective.clear()
                log.warning("log_level_altered", logger=name, log_level=self.level(name).name)
            for changed in self.on_changed:
                changed()
        return refusal

    def _refusal(self, alterations: Sequence[Alteration]) -> AlterationRefusal | None:
        names = frozenset(self.names())
        for name, operation, value in alterations:
            if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
                word = AlterOperation(operation).name
                return AlterationRefusal(
                    ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
                )
            if operation not in (AlterOperation.SET, AlterOperation.DELETE):
                return AlterationRefusal(ErrorCode.INVALID_REQUEST, f"There is no operation of type {operation}")
            if name not in names:
                return AlterationRefusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
            if operation == AlterOperation.SET and value not in LogLevel.__members__:
                levels = ", ".join(sorted(LogLevel.__members__))
                return AlterationRefusal(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {value}: the levels are {levels}",
                )
            if operation == AlterOperation.DELETE and name == ROOT:
                return AlterationRefusal(
                    ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                )
        return None


def _not_this_node(node_id: int, resource_name: str) -> AlterationRefusal | None:
    if resource_name == str(node_id):
        return None
    if not resource_name.removeprefix("-").isdecimal():
        message = f"Node id must be an integer, but it is: {resource_name}"
    else:
        message = f"Unexpected node id. Expected {node_id}, but received {resource_name}"
    return AlterationRefusal(ErrorCode.INVALID_REQUEST, message)


def _modules_that_log() -> Iterator[str]:
    """The loaded modules that log: each has its logger as `log`."""
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and hasattr(vars(module).get("log"), "bind"):
            yield name.removeprefix(PACKAGE)


def _packages_above(name: str) -> Iterator[str]:
    """The packages of a module, nearest first."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
