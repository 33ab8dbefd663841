"""The output of every command with `--json`, as a table: from it come the schemas, and the page of them.

A test runs the commands against real brokers and holds each output against its row. A new command needs a row.
`scripts.json_shapes` explains how a row is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scripts.json_objects import (
    ACLS,
    BATCH_JOB,
    ENDED,
    FINDING,
    LETTER,
    NAMED_PROFILE,
    OPEN,
    QUOTA_OF,
    QUOTAS,
    RECORD,
    REPAIRED,
    SERVED,
    SETTING,
    TRANSACTION,
    VERIFIED,
)
from scripts.json_shapes import Output, Schema, any_fields, done, fields, lines, many, one, opened, rows

OUTPUTS: Final[Mapping[str, Output | None]] = {
    "ping": one({"bootstrap": "text", "apis": "count", "duration_ms": "number"}),
    "apis": one(
        {
            "bootstrap": "text",
            "brokers": many({"broker": "count?", "address": "text", "apis": "count?", "error": "text?"}),
            "apis": many({"key": "integer", "name": "text?", "versions": SERVED}),
            "features": many({"name": "text", "supported": SERVED, "finalized": SERVED}),
            "finalized_features_epoch": "count?",
        }
    ),
    "version": done(version="text"),
    "profile list": rows(
        {
            **NAMED_PROFILE,
            "bootstrap": "text?",
            "security_protocol": "text?",
            "sasl_mechanism": "text?",
            "command_config": "text?",
        }
    ),
    "profile show": done(**NAMED_PROFILE, properties={"type": "object", "additionalProperties": {"type": "string"}}),
    "profile create": done(**NAMED_PROFILE),
    "profile set": done(**NAMED_PROFILE),
    "profile use": done(name="text?", bootstrap="text?"),
    "profile rename": done(**NAMED_PROFILE, old_name="text"),
    "profile delete": done(name="text", was_in_use="flag"),
    "profile path": done(path="text"),
    "cluster info": one(
        {
            "cluster_id": "text",
            "brokers": many(
                {"broker": "count", "state": "text", "address": "text?", "rack": "text?", "is_controller": "flag"}
            ),
            "disks": many(
                {
                    "broker": "count",
                    "directory": "text?",
                    "~log_bytes": "count",
                    "~volume_bytes": "count?",
                    "~free_bytes": "count?",
                    "error": "text?",
                }
            ),
            "features": many({"feature": "text", "level": "count?", "supported": "text?"}),
        }
    ),
    "cluster nodes": rows(
        {
            "node": "count",
            "state": "text",
            "since": "time?",
            "listeners": "texts",
            "leads": "count?",
            "of_which_internal": "count?",
        }
    ),
    "cluster partitions": rows(
        {
            "topic": "text",
            "partition": "count",
            "leader": "count?",
            "chosen": "count?",
            "next_leader": "count?",
            "epoch": "integer?",
            "state": "text",
        }
    ),
    "cluster move": done(topic="text", partition="count", chosen="count?"),
    "cluster drain": done(node="count", drained="flag"),
    "cluster check": one(
        {
            "partitions": "count",
            "segments": "count",
            "flushes": "count",
            "garbage": "count",
            "objects": "count",
            "object_bytes": "count",
            "unnamed": "count",
            "replaced": "count",
            "read_bytes": "count",
            "problems": "texts",
            "warnings": "texts",
        }
    ),
    "cluster export": rows(
        {
            "topic": "text",
            "partition": "count",
            "log_start_offset": "count",
            "end_offset": "count",
            "segments": "count",
            "sealed_bytes": "count",
            "tail_bytes": "count",
        }
    ),
    "cluster import": rows(
        {
            "cluster_id": "text",
            "topics": "count",
            "partitions": "count",
            "segments": "count",
            "uploaded": "count",
            "uploaded_bytes": "count",
            "is_repeated": "flag",
        }
    ),
    "cluster restored": rows(
        {"cluster_id": "text", "topics": "count", "partitions": "count", "nodes": "count", "skipped_offsets": "count"}
    ),
    "topics list": rows(
        {
            "topic": "text",
            "partitions": "count",
            "records": "count?",
            "size_bytes": "count?",
            "offline": "count?",
            "topic_id": "text?",
        }
    ),
    "topics create": rows({"topic": "text", "partitions": "count?", "created": "flag", "error": "text?"}),
    "topics describe": rows(
        {
            "partition": "count",
            "leader": "integer?",
            "replicas": "counts",
            "in_sync": "counts",
            "log_start_offset": "count?",
            "last_stable_offset": "count?",
            "high_watermark": "count?",
            "size_bytes": "count?",
            "newest_record": "time?",
            "error": "text?",
        }
    ),
    "topics trim": rows({"partition": "count", "log_start_offset": "count", "deleted_offsets": "count?"}),
    "topics configs": rows(SETTING),
    "topics grow": rows({"topic": "text", "partitions": "count", "before": "count?", "error": "text?"}),
    "topics delete": rows(
        {"topic": "text", "deleted": "flag", "error": "text?"},
        {"topic": "text", "partitions": "count", "records": "count?", "size_bytes": "count?", "topic_id": "text?"},
    ),
    "produce": None,
    "consume": lines(
        {**RECORD, "~key_schema": "text", "~key_error": "text", "~value_schema": "text", "~value_error": "text"},
        {
            **RECORD,
            "mark": "text",
            "producer_id": "integer",
            "producer_epoch": "integer",
            "~outcome": "text",
        },
    ),
    "groups list": rows(
        {
            "group": "text",
            "state": "text?",
            "type": "text?",
            "protocol_type": "text?",
            "members": "count?",
            "partitions": "count?",
            "lag": "count?",
            "read_committed_lag": "count?",
            "unread_partitions": "count?",
        }
    ),
    "groups describe": rows(
        {
            "topic": "text?",
            "partition": "count?",
            "committed_offset": "count?",
            "last_stable_offset": "count?",
            "high_watermark": "count?",
            "lag": "count?",
            "read_committed_lag": "count?",
            "member": "text?",
            "host": "text?",
        },
        {
            "topic": "text?",
            "partition": "count?",
            "start_offset": "count?",
            "high_watermark": "count?",
            "lag": "count?",
            "member": "text?",
        },
        {
            "member_id": "text",
            "client_id": "text",
            "host": "text",
            "instance_id": "text?",
            "epoch": "integer?",
            "subscription": "any",
            "assignment": "texts",
            "~tasks": "any",
        },
    ),
    "groups reset-offsets": rows({"topic": "text", "partition": "count", "offset": "count?", "before": "count?"}),
    "groups delete-offsets": done(group="text", topic="text", partitions="counts"),
    "groups delete": rows(
        {"group": "text", "deleted": "flag", "error": "text?"}, {"group": "text", "type": "text", "state": "text"}
    ),
    "groups import": rows(
        {
            "group": "text",
            "topic": "text",
            "partition": "count",
            "before": "count?",
            "offset": "count",
            "moved_by": "integer?",
        }
    ),
    "groups dead-letters": rows(LETTER),
    "groups redeliver": Output(
        {
            "anyOf": [
                fields(
                    {
                        "group": "text",
                        "dead_letter_topic": "text",
                        "redelivered": "count",
                        "continued": "count",
                        "without_original": "count",
                        "partitions": many({"topic": "text", "partition": "count", "records": "count"}),
                        "message": "text",
                    }
                ),
                many(LETTER),
            ]
        }
    ),
    "transactions list": rows(
        TRANSACTION,
        OPEN,
        {
            **OPEN,
            "resolver": "text?",
            "checks": "count?",
            "last_answer": "text?",
            "next_question": "text?",
            "parked": "any",
        },
        {
            "topic": "text",
            "partition": "count",
            "producer_id": "count",
            "producer_epoch": "count",
            "start_offset": "count",
            "age_ms": "count?",
        },
    ),
    "transactions describe": rows(
        {
            "transactional_id": "text",
            "state": "text",
            "producer_id": "integer",
            "producer_epoch": "integer",
            "timeout_ms": "count",
            "started": "time?",
            "age_ms": "count?",
            "partitions": "texts",
        }
    ),
    "transactions producers": rows(
        {
            "producer_id": "integer",
            "producer_epoch": "integer",
            "last_sequence": "integer",
            "last_write": "time?",
            "coordinator_epoch": "integer",
            "transaction_start_offset": "count?",
        }
    ),
    "transactions why": one(
        {
            "topic": "text",
            "partition": "count",
            "cause": "text",
            "sentence": "text",
            "log_start_offset": "count?",
            "last_stable_offset": "count?",
            "high_watermark": "count?",
            "chain": many({"kind": "text", "name": "text", "details": "texts", "missing": "flag"}),
            "consequences": "texts",
            "remedies": many({"remedy": "text", "advice": "text", "command": "text?"}),
        }
    ),
    "transactions commit": ENDED,
    "transactions abort": ENDED,
    "transactions terminate": ENDED,
    "transactions ask-again": done(transactional_id="text", asked="flag"),
    "transactions abort-hanging": done(
        topic="text", partition="count", producer_id="count", producer_epoch="count", start_offset="count"
    ),
    "two-phase compare": rows(
        {"difference": "text", "commit_id": "text", "began": "time?", "first_record": "text?"},
    ),
    "check-back": lines(any_fields("timestamp", "level", "event")),
    "spark finish": lines(BATCH_JOB, {"sink": "text", "topic": "text", "done": "flag", "message": "text"}),
    "acls add": ACLS,
    "acls list": ACLS,
    "acls remove": ACLS,
    "users set": done(user="text", mechanisms="texts"),
    "users list": rows({"user": "text", "mechanism": "text", "iterations": "count?"}),
    "users remove": done(user="text", removed="flag"),
    "tokens create": done(token_id="text", hmac="text", owner="text", expires="time?", latest_end="time?"),
    "tokens list": rows(
        {
            "token_id": "text",
            "owner": "text",
            "requester": "text",
            "renewers": "texts",
            "issued": "time?",
            "expires": "time?",
            "latest_end": "time?",
        }
    ),
    "tokens renew": done(token_id="text", expires="time?"),
    "tokens expire": one(
        {"token_id": "text", "removed": "flag", "message": "text"},
        {"token_id": "text", "expires": "time?", "message": "text"},
    ),
    "quotas set": done(**QUOTA_OF, **{f"~{name}": "number" for name in QUOTAS}),
    "quotas list": rows({"user": "text?", "client-id": "text?", "ip": "text?", **dict.fromkeys(QUOTAS, "number?")}),
    "quotas remove": done(**QUOTA_OF, removed="texts"),
    "configs": rows({**SETTING, "read_only": "flag", "secret": "flag"}),
    "bench": one(
        {
            "records": "count",
            "size_bytes": "count",
            "partitions": "count",
            "written_records_per_s": "number",
            "written_mb_per_s": "number",
            "read_records_per_s": "number",
            "read_mb_per_s": "number",
            "acknowledged_p50_ms": "number",
            "acknowledged_p99_ms": "number",
            "end_to_end_p50_ms": "number",
            "end_to_end_p99_ms": "number",
        }
    ),
    "log verify": one(VERIFIED, {"data_directory": "text", "healthy": "flag", "nodes": many(VERIFIED)}),
    "log repair": one(REPAIRED, {"data_directory": "text", "healthy": "flag", "nodes": many(REPAIRED)}),
    "log dump": lines(any_fields("path", "kind")),
    "log restored": rows(
        {"data_directory": "text", "topics": "count", "partitions": "count", "skipped_offsets": "count"}
    ),
    "history check": one(
        {
            "valid": "flag",
            "counts": "by name",
            "anomaly_counts": "by name",
            "anomalies": many(FINDING),
            "permitted_count": "count",
            "permitted": many(FINDING),
        }
    ),
    "soak": one(any_fields("good", "minutes", "seed")),
    "test-broker": lines({"url": "text", "pid": "count", "version": "text"}),
}
"""By command, in the order of the help. None: it prints nothing on standard output."""


def published(command: str) -> Schema | None:
    """The schema for programs: it allows more fields than today's, as later versions may add some."""
    output = OUTPUTS[command]
    return None if output is None else opened(output.schema)
