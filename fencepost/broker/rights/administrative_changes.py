"""What administrative requests have changed, for the audit log: one table, by API.

It is asked after the handler, and names only what the handler did, not what it refused. Values of broker configs, and
all of users but their names, are left out: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.security.audit import AdministrativeChange, note_change
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.features import UpdateFeaturesResponse

if TYPE_CHECKING:
    from fencepost.broker.group.service import GroupService
    from fencepost.broker.kernel.topic_partition import TopicPartition
    from fencepost.broker.requests.api import RequestContext

log = get_logger(__name__)

MAXIMUM_NOTED: Final = 10_000
"""Connections and groups that are remembered as noted; then they are noted anew."""
MAXIMUM_LISTED: Final = 100
"""Partitions that one line names."""

_noted: Final[WeakKeyDictionary[GroupService, set[tuple[int, str]]]] = WeakKeyDictionary()
"""By node: connections, and groups whose offsets they have set."""

Changes = Iterable[AdministrativeChange]

_RESOURCE_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_SECRET_TYPES: Final = frozenset({"BROKER"})
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_OPERATIONS: Final = ("set", "removed", "appended", "subtracted")


def note_changes(context: RequestContext, request: Any, response: Any) -> None:
    """Write to the audit log what a request has changed."""
    try:
        principal, host = context.connection.principal, context.client_host
        for change in CHANGES[request.api_key](context, request, response):
            note_change(principal, host, type(request).__name__.removesuffix("Request"), change)
    except Exception:
        log.exception("change_not_audited", api=type(request).__name__)  # it is done, and the client must learn that


_RESULTS: Final = ("topics", "responses", "results", "filter_results", "entries")
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
"""The second: a client that creates what it does not find goes on, too, with a topic that may be a moment old."""


def is_refused(request: Any, response: Any) -> bool:
    """Whether a request for changes of shared metadata was refused wholly, asked for none, or only tried them."""
    if getattr(request, "validate_only", False) or getattr(response, "error_code", 0):
        return True
    results = next((getattr(response, name) for name in _RESULTS if hasattr(response, name)), ())
    if not results:
        return type(response) is not UpdateFeaturesResponse  # its later versions have one error for all
    return all(result.error_code not in _DONE for result in results)


def note_set_offsets(context: RequestContext, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Note that offsets of a group were set by a client that is no member of it.

    That is how offsets are reset; but consumers without a group's assignment commit like this, too, again and again. So
    the first commit of each connection is noted.
    """
    noted = _noted.setdefault(context.services.groups, set())
    key = context.connection.connection_id, group_id
    if key in noted:
        return
    if len(noted) >= MAXIMUM_NOTED:
        noted.clear()
    noted.add(key)
    shown = _listed(f"{name.topic}-{name.partition}: {offset}" for name, offset in offsets.items())
    change = AdministrativeChange("ALTER", "GROUP", group_id, {"offsets": shown})
    note_change(context.connection.principal, context.client_host, "OffsetCommit", change)


def _listed(items: Iterable[str]) -> list[str]:
    """The first of the items, and how many more there are."""
    shown = list(items)
    if len(shown) > MAXIMUM_LISTED:
        shown[MAXIMUM_LISTED:] = [f"{len(shown) - MAXIMUM_LISTED} more"]
    return shown


def _created_topics(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    configs = {topic.name: {config.name: config.value for config in topic.configs} for topic in request.topics}
    for topic in _done(response.topics):
        metadata = context.services.topics.metadata.get(topic.name)
        count = topic.num_partitions if metadata is None else metadata.partition_count
        details = {"partitions": count, "configs": configs.get(topic.name)}
        yield AdministrativeChange("CREATE", "TOPIC", topic.name, details)


def _deleted_topics(context: RequestContext, request: Any, response: Any) -> Changes:
    for topic in _done(response.responses):
        yield AdministrativeChange("DELETE", "TOPIC", topic.name or "", {})


def _grown_topics(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    counts = {topic.name: topic.count for topic in request.topics}
    for topic in _done(response.results):
        yield AdministrativeChange("ALTER", "TOPIC", topic.name, {"partitions": counts.get(topic.name)})


def _deleted_records(context: RequestContext, request: Any, response: Any) -> Changes:
    for topic in response.topics:
        starts = _listed(f"{one.partition_index}: {one.low_watermark}" for one in _done(topic.partitions))
        if starts:
            yield AdministrativeChange("DELETE", "TOPIC", topic.name, {"records_before": starts})


def _ended_transactions(context: RequestContext, request: Any, response: Any) -> Changes:
    """Markers that a client asked for. In a cluster, coordinators on other nodes ask for theirs all the time."""
    nodes = {f"broker-{other.node_id}" for other in context.services.topics.placement.other_nodes()}
    if context.client_id in nodes:
        return
    done = {  # the reply has one entry for all markers of a producer
        (answered.producer_id, topic.name, partition.partition_index)
        for answered in response.markers
        for topic in answered.topics
        for partition in _done(topic.partitions)
    }
    for asked in request.markers:
        partitions = _listed(
            f"{topic.name}-{index}"
            for topic in asked.topics
            for index in topic.partition_indexes
            if (asked.producer_id, topic.name, index) in done
        )
        if partitions:
            outcome = "committed" if asked.transaction_result else "aborted"
            details = {"producer_epoch": asked.producer_epoch, "outcome": outcome, "partitions": partitions}
            yield AdministrativeChange("ALTER", "PRODUCER", str(asked.producer_id), details)


def _altered_configs(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    failed = {(one.resource_type, one.resource_name) for one in response.responses if one.error_code}
    for asked in request.resources:
        if (asked.resource_type, asked.resource_name) in failed:
            continue
        kind = _RESOURCE_TYPES.get(asked.resource_type, str(asked.resource_type))
        details: dict[str, Any] = {}
        by_operation = sorted(asked.configs, key=_operation_of)
        for operation, configs in groupby(by_operation, key=_operation_of):
            words = _OPERATIONS[operation] if operation in range(len(_OPERATIONS)) else "unknown"
            if words == "removed" or kind in _SECRET_TYPES:
                details[words] = [config.name for config in configs]
            else:
                details[words] = {config.name: config.value for config in configs}
        yield AdministrativeChange("ALTER_CONFIGS", kind, asked.resource_name, details)


def _operation_of(config: Any) -> int:
    """The number of the operation; AlterConfigs only sets."""
    operation: int = getattr(config, "config_operation", 0)
    return operation


def _altered_quotas(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    failed = {_entity(entry) for entry in response.entries if entry.error_code}
    for entry in request.entries:
        if _entity(entry) not in failed:
            quotas = {op.key: None if op.remove else op.value for op in entry.ops}
            yield AdministrativeChange("ALTER_CONFIGS", "QUOTA", _entity(entry), {"quotas": quotas})


def _entity(entry: Any) -> str:
    """An entity as text. Of two parts of one type the last counts, as in Kafka."""
    parts = sorted({part.entity_type: part.entity_name for part in entry.entity}.items())
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)


def _altered_users(context: RequestContext, request: Any, response: Any) -> Changes:
    for result in _done(response.results):
        details = {
            word: mechanisms
            for word, items in (("set", request.upsertions), ("removed", request.deletions))
            if (
                mechanisms := [_MECHANISMS.get(item.mechanism, "unknown") for item in items if item.name == result.user]
            )
        }
        yield AdministrativeChange("ALTER", "USER", result.user, details)


def _updated_features(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only or response.error_code:
        return
    failed = {result.feature for result in response.results if result.error_code}
    for update in request.feature_updates:
        if update.feature not in failed:
            yield AdministrativeChange("ALTER", "FEATURE", update.feature, {"level": update.max_version_level})


def _deleted_groups(context: RequestContext, request: Any, response: Any) -> Changes:
    for group in _done(response.results):
        yield AdministrativeChange("DELETE", "GROUP", group.group_id, {})


def _deleted_offsets(context: RequestContext, request: Any, response: Any) -> Changes:
    partitions = _done_partitions(response.topics)
    if partitions and not response.error_code:
        yield AdministrativeChange("DELETE", "GROUP", request.group_id, {"offsets_of": partitions})


def _altered_share_offsets(context: RequestContext, request: Any, response: Any) -> Changes:
    wanted = {
        (topic.topic_name, partition.partition_index): partition.start_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    offsets = _listed(
        f"{topic.topic_name}-{partition.partition_index}: {wanted.get((topic.topic_name, partition.partition_index))}"
        for topic in response.responses
        for partition in _done(topic.partitions)
    )
    if offsets and not response.error_code:
        yield AdministrativeChange("ALTER", "GROUP", request.group_id, {"offsets": offsets})


def _deleted_share_offsets(context: RequestContext, request: Any, response: Any) -> Changes:
    topics = _listed(topic.topic_name for topic in _done(response.responses))
    if topics and not response.error_code:
        yield AdministrativeChange("DELETE", "GROUP", request.group_id, {"offsets_of": topics})


def _elsewhere(context: RequestContext, request: Any, response: Any) -> Changes:
    """The handler notes what has changed: the response does not say it."""
    return ()


def _moved_partitions(context: RequestContext, request: Any, response: Any) -> Changes:
    """Leaders that were chosen, null where the choice was given back. A node that is alone moves nothing."""
    if context.services.leader_choices is None:
        return
    answers = {topic.name: {one.partition_index for one in _done(topic.partitions)} for topic in response.responses}
    for topic in request.topics:
        done = [one for one in topic.partitions if one.partition_index in answers.get(topic.name, ())]
        if done:
            chosen = _listed(
                f"{one.partition_index}: {'any' if one.replicas is None else one.replicas[0]}" for one in done
            )
            yield AdministrativeChange("ALTER", "TOPIC", topic.name, {"leaders": chosen})


def _done(results: Iterable[Any]) -> Iterator[Any]:
    """The results without an error."""
    return (result for result in results if not result.error_code)


def _done_partitions(topics: Iterable[Any]) -> list[str]:
    return _listed(f"{topic.name}-{one.partition_index}" for topic in topics for one in _done(topic.partitions))


CHANGES: Final[Mapping[int, Callable[[RequestContext, Any, Any], Changes]]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _grown_topics,
    ApiKey.DELETE_RECORDS: _deleted_records,
    ApiKey.WRITE_TXN_MARKERS: _ended_transactions,
    ApiKey.CREATE_ACLS: _elsewhere,
    ApiKey.DELETE_ACLS: _elsewhere,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
    ApiKey.UPDATE_FEATURES: _updated_features,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _moved_partitions,
    ApiKey.DELETE_GROUPS: _deleted_groups,
    ApiKey.OFFSET_DELETE: _deleted_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _altered_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _deleted_share_offsets,
}
"""By API key; exactly the administrative ones of `SERVED`."""
