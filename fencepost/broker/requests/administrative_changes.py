"""Changes by administrative requests, for the audit log: an API declares the function that names them.

The function is called after the handler, and names only the changes that were made, not those that were refused.
Values of broker configs, and all of users but their names, are left out: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.features import UpdateFeaturesResponse

if TYPE_CHECKING:
    from fencepost.broker.group.service import GroupService
    from fencepost.broker.kernel.topic_partition import TopicPartition

log = get_logger(__name__)

Context = Any
"""A `RequestContext`, whose module imports this one."""

MAXIMUM_NOTED: Final = 10_000
"""Bound of the connections and groups remembered as noted; beyond it, all are forgotten, and may be noted again."""
MAXIMUM_LISTED: Final = 100
"""Partitions that one line names."""
LONGEST_REASON_CHARACTERS: Final = 1_000

_noted: Final[WeakKeyDictionary[GroupService, set[tuple[int, str]]]] = WeakKeyDictionary()
"""By node: connections, and groups whose offsets they have set."""


class AdministrativeChange(NamedTuple):
    """One change by an administrator.

    operation:     name as in rules, such as CREATE.
    resource_type: name as in rules if they have it; else BROKER, BROKER_LOGGER, QUOTA, FEATURE or PRODUCER.
    details:       new values, without secrets.
    """

    operation: str
    resource_type: str
    resource_name: str
    details: Mapping[str, Any]


Changes = Iterable[AdministrativeChange]
AuditedChanges = Callable[[Context, Any, Any], Changes]
"""(context, request, response): the changes by the request."""


def note_changes(audit: AuditedChanges, context: Context, request: Any, response: Any) -> None:
    """Write the changes by a request to the audit log."""
    from fencepost.broker.security.audit import note_change

    try:
        principal, host = context.connection.principal, context.client_host
        for change in audit(context, request, response):
            note_change(principal, host, type(request).__name__.removesuffix("Request"), *change)
    except Exception:
        log.exception("change_not_audited", api=type(request).__name__)  # it is done, and the client must learn that


_RESULTS: Final = ("topics", "responses", "results", "filter_results", "entries")
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
"""The second, because a client that creates missing topics then uses the topic, which may be a moment old."""


def is_refused(request: Any, response: Any) -> bool:
    """Whether a request for changes of shared metadata was refused wholly, asked for none, or only tried them."""
    if getattr(request, "validate_only", False) or getattr(response, "error_code", 0):
        return True
    results = next((getattr(response, name) for name in _RESULTS if hasattr(response, name)), None)
    if results is None:
        return False  # the one error that it has is none
    if not results:
        return type(response) is not UpdateFeaturesResponse  # its later versions have one error for all
    return all(result.error_code not in _DONE for result in results)


def note_set_offsets(context: Context, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Note that offsets of a group were set by a client that is no member of it.

    That is how offsets are reset; but consumers without a group's assignment commit like this, too, again and again. So
    the first commit of each connection is noted.
    """
    from fencepost.broker.security.audit import note_change

    noted = _noted.setdefault(context.services.groups, set())
    key = context.connection.connection_id, group_id
    if key in noted:
        return
    if len(noted) >= MAXIMUM_NOTED:
        noted.clear()
    noted.add(key)
    shown = listed(f"{name.topic}-{name.partition}: {offset}" for name, offset in offsets.items())
    change = AdministrativeChange("ALTER", "GROUP", group_id, {"offsets": shown})
    note_change(context.connection.principal, context.client_host, "OffsetCommit", *change)


def listed(items: Iterable[str]) -> list[str]:
    """The first of the items, and how many more there are."""
    shown = list(items)
    if len(shown) > MAXIMUM_LISTED:
        shown[MAXIMUM_LISTED:] = [f"{len(shown) - MAXIMUM_LISTED} more"]
    return shown


def audited_by_handler(context: Context, request: Any, response: Any) -> Changes:
    """The handler notes the changes: the response does not have them."""
    return ()


def succeeded(results: Iterable[Any]) -> Iterator[Any]:
    """The results without an error."""
    return (result for result in results if not result.error_code)


def succeeded_partitions(topics: Iterable[Any]) -> list[str]:
    return listed(f"{topic.name}-{one.partition_index}" for topic in topics for one in succeeded(topic.partitions))
