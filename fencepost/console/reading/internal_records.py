"""Records of Kafka's internal topics as text."""

from __future__ import annotations

import json
from typing import Any

from fencepost.diagnosis.transaction_history import state_name
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import schema_of
from fencepost.protocol.stored.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.stored.transaction_state import TransactionLogKey, TransactionLogValue
from fencepost.protocol.stored.versioned import decode_versioned, read_version


def decoded(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, str | None] | None:
    """Key and value of a record as JSON; None for records that are not known, which are shown as they are."""
    if key is None:
        return None
    try:
        if topic == "__transaction_state":
            found: Any = decode_versioned(TransactionLogKey, key)
            if found is None:
                return None
            return found.transactional_id, None if value is None else _transaction(value)
        if topic == "__consumer_offsets":
            return _committed(key, value)
    except DecodeError:
        return None
    return None


def _transaction(value: bytes) -> str:
    state = decode_versioned(TransactionLogValue, value)
    if state is None:
        return value.hex(" ")
    fields = {one.name: getattr(state, one.name) for one in schema_of(type(state)).fields}
    fields["transaction_status"] = state_name(state.transaction_status)
    fields["transaction_partitions"] = [
        f"{topic.topic}-{index}" for topic in state.transaction_partitions or () for index in topic.partition_ids
    ]
    return json.dumps(fields, ensure_ascii=False)


def _committed(key: bytes, value: bytes | None) -> tuple[str, str | None] | None:
    version = read_version(key)
    if version in (0, 1):
        place = decode_versioned(OffsetCommitKey, key)
        assert place is not None
        text = f"offset: {place.group}, {place.topic}-{place.partition}"
        if value is None:
            return text, None
        committed = decode_versioned(OffsetCommitValue, value)
        if committed is None:
            return text, value.hex(" ")
        return text, json.dumps(
            {"offset": committed.offset, "leader_epoch": committed.leader_epoch, "metadata": committed.metadata}
        )
    if version == 2:
        group = decode_versioned(GroupMetadataKey, key)
        assert group is not None
        return f"group: {group.group}", None if value is None else value.hex(" ")
    return None
