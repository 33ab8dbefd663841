"""A reply as plain data that does not depend on the run: ids have names, free values are only said to be there.

Fields that have their default are left out. So one situation usually gives the same data at all versions that know
its fields, and a recording says it once.
"""

from __future__ import annotations

import re
import time
from operator import itemgetter
from typing import Any

from fencepost.protocol.declaration import SCHEMA_ATTRIBUTE, struct_schema_of
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.record_batch import iterate_batches

PRESENT = "*"
"""Stands for a value that is free to differ, where it is not the default."""

NOW = "now"
"""Stands for a time at which the run itself took place."""
A_DAY_MS = 86_400_000

FREE = {
    "throttle_time_ms": "depends on quotas and load",
    "host": "the broker's own address",
    "port": "the broker's own address",
    "cluster_id": "made at random",
    "finalized_features_epoch": "counts the changes of metadata",
    "session_id": "made at random",
    "log_append_time_ms": "the time of the append",
    "last_timestamp": "the time of the append",
    "transaction_start_time_ms": "the time of the request",
    "error_message": "a text for people",
    "batch_index_error_message": "a text for people",
    "acknowledge_error_message": "a text for people",
    "documentation": "a text for people",
    "status_detail": "a text for people",
    "log_dir": "the broker's own folder",
    "total_bytes": "of the disk",
    "usable_bytes": "of the disk",
}
"""Fields, by name, of which only counts whether they are there, each with the reason."""

IDS = {"topic_id", "producer_id", "member_id", "leader"}
"""Fields that hold ids made by the broker: compared by where the id appeared first."""

COUNTED = {"ShareGroupHeartbeatTopicPartitions.partitions", "ShareGroupDescribeTopicPartitions.partitions"}
"""Lists of which only the length counts: Kafka's choice of elements goes by the hash of a topic's random id."""

HASHED = "Kafka keeps them in a hash table"
APART = "Kafka answers refused ones apart from the others"
UNORDERED: dict[str, tuple[str, str]] = {
    "DescribeAclsResponse.resources": ("", HASHED),
    "DescribeAclsResource.acls": ("", HASHED),
    "DeleteAclsFilterResult.matching_acls": ("", HASHED),
    "AlterClientQuotasResponse.entries": ("", HASHED),
    "AlterReplicaLogDirsResponse.results": ("topic_name", HASHED),
    "AlterReplicaLogDirTopicResult.partitions": ("partition_index", HASHED),
    "AlterUserScramCredentialsResponse.results": ("user", HASHED),
    "DescribeUserScramCredentialsResponse.results": ("user", HASHED),
    "AlteredEntryData.entity": ("entity_type", HASHED),
    "DescribeClientQuotasResponse.entries": ("", HASHED),
    "EntryData.entity": ("entity_type", HASHED),
    "ListOffsetsResponse.topics": ("name", APART),
    "DeleteRecordsResponse.topics": ("name", HASHED),
    "DeleteRecordsTopicResult.partitions": ("partition_index", HASHED),
    "TxnOffsetCommitResponse.topics": ("name", APART),
    "WriteTxnMarkersResponse.markers": ("producer_id", HASHED),
    "EntryData.values": ("key", HASHED),
    "ListOffsetsTopicResponse.partitions": ("partition_index", HASHED),
    "DescribeShareGroupOffsetsResponseGroup.topics": ("topic_name", HASHED),
    "DescribeShareGroupOffsetsResponseTopic.partitions": ("partition_index", HASHED),
    "AlterShareGroupOffsetsResponse.responses": ("topic_name", HASHED),
    "AlterShareGroupOffsetsResponseTopic.partitions": ("partition_index", HASHED),
    "DeleteShareGroupOffsetsResponse.responses": ("topic_name", HASHED),
    "DescribeLogDirsResult.topics": ("name", HASHED),
    "DescribeLogDirsTopic.partitions": ("partition_index", HASHED),
    "FetchResponse.responses": ("topic topic_id", APART),
    "FetchableTopicResponse.partitions": ("partition_index", APART),
    "MetadataResponse.topics": ("name", HASHED),
    "CreateTopicsResponse.topics": ("name", APART),
    "DeleteTopicsResponse.responses": ("name", "Kafka shuffles them on purpose"),
    "CreatePartitionsResponse.results": ("name", APART),
    "ListGroupsResponse.groups": ("group_id", HASHED),
    "ListTransactionsResponse.transaction_states": ("transactional_id", HASHED),
    "ListTransactionsResponse.unknown_state_filters": ("", HASHED),
    "ListConfigResourcesResponse.config_resources": ("resource_name", HASHED),
    "DescribeConfigsResponse.results": ("resource_name", HASHED),
    "DescribeConfigsResult.configs": ("name", HASHED),
    "CreatableTopicResult.configs": ("name", HASHED),
    "AlterConfigsResponse.responses": ("resource_name", HASHED),
    "IncrementalAlterConfigsResponse.responses": ("resource_name", HASHED),
    "ApiVersionsResponse.api_keys": ("api_key", HASHED),
    "ApiVersionsResponse.supported_features": ("name", HASHED),
    "ApiVersionsResponse.finalized_features": ("name", HASHED),
    "JoinGroupResponse.members": ("member_id", HASHED),
    "ConsumerGroupDescribeResponse.groups": ("group_id", APART),
    "ShareGroupDescribeResponse.groups": ("group_id", APART),
    "StreamsGroupDescribeResponse.groups": ("group_id", APART),
    "DescribedGroup.members": ("member_id", HASHED),
    "ConsumerGroupDescribedGroup.members": ("member_id", HASHED),
    "ConsumerGroupDescribeMember.subscribed_topic_names": ("", HASHED),
    "ConsumerGroupHeartbeatResponseAssignment.topic_partitions": ("topic_id", HASHED),
    "ConsumerGroupHeartbeatTopicPartitions.partitions": ("", HASHED),
    "ConsumerGroupDescribeAssignment.topic_partitions": ("topic_name", HASHED),
    "ConsumerGroupDescribeTopicPartitions.partitions": ("", HASHED),
    "ShareFetchResponse.responses": ("topic_id", HASHED),
    "ShareFetchableTopicResponse.partitions": ("partition_index", HASHED),
    "ShareAcknowledgeResponse.responses": ("topic_id", HASHED),
    "ShareAcknowledgeTopicResponse.partitions": ("partition_index", HASHED),
    "ShareGroupDescribeAssignment.topic_partitions": ("topic_name", HASHED),
    "ShareGroupDescribedGroup.members": ("member_id", HASHED),
    "ShareGroupDescribeMember.subscribed_topic_names": ("", HASHED),
    "ShareGroupHeartbeatAssignment.topic_partitions": ("topic_id", HASHED),
    "StreamsEndpointToPartitions.active_partitions": ("topic", HASHED),
    "StreamsEndpointToPartitions.standby_partitions": ("topic", HASHED),
    "StreamsGroupDescribedGroup.members": ("member_id", HASHED),
    "StreamsGroupHeartbeatResponse.active_tasks": ("subtopology_id", HASHED),
    "StreamsGroupHeartbeatResponse.standby_tasks": ("subtopology_id", HASHED),
    "StreamsGroupHeartbeatResponse.partitions_by_user_endpoint": ("", HASHED),
    "OffsetFetchResponse.topics": ("name", APART),
    "OffsetFetchResponseGroup.topics": ("name topic_id", APART),
    "OffsetFetchResponseTopics.partitions": ("partition_index", HASHED),
    "OffsetFetchResponseTopic.partitions": ("partition_index", HASHED),
    "OffsetCommitResponse.topics": ("name topic_id", APART),
    "OffsetCommitResponseTopic.partitions": ("partition_index", APART),
    "TxnOffsetCommitResponseTopic.partitions": ("partition_index", APART),
    "OffsetForLeaderEpochResponse.topics": ("topic", APART),
    "DeleteGroupsResponse.results": ("group_id", APART),
    "DescribeUserScramCredentialsResult.credential_infos": ("mechanism", HASHED),
    "DescribeGroupsResponse.groups": ("group_id", APART),
    "DescribeTransactionsTransactionState.topics": ("topic", HASHED),
    "TopicData.partitions": ("", HASHED),
    "PartitionResponse.active_producers": ("producer_id", HASHED),
    "ProduceResponse.responses": ("name topic_id", APART),
    "TopicProduceResponse.partition_responses": ("index", APART),
    "WritableTxnMarkerTopicResult.partitions": ("partition_index", APART),
    "WritableTxnMarkerResult.topics": ("name", APART),
    "AddPartitionsToTxnResponse.results_by_topic_v3_and_below": ("name", HASHED),
    "AddPartitionsToTxnTopicResult.results_by_partition": ("partition_index", HASHED),
}
"""Lists whose order says nothing, each with the field that tells the elements apart (where there are two, whichever
is set), and the reason; all others are compared in their order."""

_GENERATED_MEMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$")


class Names:
    """The names of ids and of what a run made up, over one theme.

    token: what this run puts into all names that it gives, so that two runs on one broker do not meet.
    """

    def __init__(self, token: str) -> None:
        self._made_up = re.compile(rf"(\.v\d+)?-{re.escape(token)}")
        self._ids: dict[tuple[str, Any], str] = {}

    def remember(self, value: Any, name: str) -> None:
        """Call an id by this name from now on."""
        self._ids.setdefault((type(value).__name__, value), name)

    def of_id(self, value: Any, situation: str, field_name: str) -> str:
        known = self._ids.get((type(value).__name__, value))
        if known is None:
            known = f"{field_name} of '{situation}'"
            self.remember(value, known)
        return known

    def of_text(self, text: str) -> str:
        return self._made_up.sub("", text)


def plain(reply: Any, names: Names, situation: str) -> Any:
    """A decoded reply as what JSON can hold. `situation` names the ids that appear here for the first time."""
    return _struct(reply, names, situation)


def _struct(value: Any, names: Names, situation: str) -> dict[str, Any]:
    schema = struct_schema_of(type(value))
    out: dict[str, Any] = {}
    for field in schema.fields:
        content = getattr(value, field.name)
        if content == field.default and not isinstance(content, memoryview):
            continue
        if field.name in FREE:
            out[field.name] = None if content is None else PRESENT
            continue
        if f"{schema.name}.{field.name}" in COUNTED:
            out[field.name] = f"{len(content)} of them"
            continue
        plain_content = _value(content, field.name, names, situation)
        unordered = UNORDERED.get(f"{schema.name}.{field.name}")
        if unordered is not None and content is not None:
            key = unordered[0]
            keys = [_key(element, key.split(), names, situation) for element in content] if key else []
            plain_content = _without_order(plain_content, key, keys)
        out[field.name] = plain_content
    return out


def _without_order(elements: list[Any], key: str, keys: list[Any]) -> Any:
    """By their keys, or sorted where these do not tell them apart."""
    named: dict[str, dict[str, Any]] = {}
    for name, element in sorted(zip(map(str, keys), elements, strict=True), key=itemgetter(0)) if keys else ():
        content = _without(element, key)
        earlier = named.setdefault(name, content)
        if earlier is not content and not _take_in(earlier, content):
            break
    else:
        if keys:
            return named
    return sorted(elements, key=_sort_key)


def _take_in(element: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Add another piece of an element that came in several, as topics do in Kafka's replies to Fetch; False where they
    are not about different parts."""
    is_a_piece = (
        piece != {}
        and element.keys() == piece.keys()
        and all(
            isinstance(value, dict) and isinstance(element[name], dict) and element[name].keys().isdisjoint(value)
            for name, value in piece.items()
        )
    )
    if is_a_piece:
        for name, value in piece.items():
            element[name] = dict(sorted((element[name] | value).items()))
    return is_a_piece


def _key(element: Any, fields: list[str], names: Names, situation: str) -> str:
    """The first of the fields that is set; a topic has a name or an id."""
    field = next((one for one in fields if getattr(element, one) not in (None, "", ZERO_UUID)), fields[0])
    return str(_value(getattr(element, field), field, names, situation))


def _without(element: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in element.items() if name not in key.split()}


def _sort_key(value: Any) -> str:
    return repr(sorted(value.items())) if isinstance(value, dict) else repr(value)


def _value(content: Any, field_name: str, names: Names, situation: str) -> Any:
    if isinstance(content, list):
        return [_value(element, field_name, names, situation) for element in content]
    if hasattr(type(content), SCHEMA_ATTRIBUTE):
        return _struct(content, names, situation)
    if field_name in IDS and _is_made_by_the_broker(content):
        return names.of_id(content, situation, field_name)
    if isinstance(content, str):
        return names.of_text(content)
    if isinstance(content, int) and abs(content - time.time() * 1000) < A_DAY_MS:
        return NOW
    if field_name == "records":
        return _batches(content, names, situation)
    if isinstance(content, bytes | bytearray | memoryview):
        return names.of_text(bytes(content).decode("latin-1"))
    return content


def _is_made_by_the_broker(content: Any) -> bool:
    if isinstance(content, int):
        return content >= 0
    return isinstance(content, bytes) or _GENERATED_MEMBER.search(content) is not None


def _batches(content: Any, names: Names, situation: str) -> list[dict[str, Any]] | None:
    if content is None:
        return None
    out = []
    for batch in iterate_batches(memoryview(content)):
        header = batch.header
        shown: dict[str, Any] = {
            "base_offset": header.base_offset,
            "partition_leader_epoch": header.partition_leader_epoch,
            "attributes": header.attributes,
            "last_offset_delta": header.last_offset_delta,
            "size_bytes": header.size_bytes,
            "records_count": header.records_count,
        }
        if header.producer_id >= 0:
            shown["producer_id"] = names.of_id(header.producer_id, situation, "producer_id")
            shown |= {"producer_epoch": header.producer_epoch, "base_sequence": header.base_sequence}
        out.append(shown)
    return out
