"""Objects that several commands print, or that are long: parts of `scripts.json_outputs`."""

from __future__ import annotations

from typing import Final

from scripts.json_shapes import done, many, rows

ACLS: Final = rows(
    {
        "resource_type": "text",
        "resource_name": "text",
        "pattern": "text",
        "permission": "text",
        "principal": "text",
        "host": "text",
        "operation": "text",
    }
)
SERVED: Final = many({"min_version": "count?", "max_version": "count?", "brokers": {"type": "array"}})
ENDED: Final = done(producer_id="count", producer_epoch="count", transactional_id="text", outcome="text")
RECORD: Final = {
    "topic": "text",
    "partition": "count",
    "offset": "count",
    "timestamp_ms": "integer",
    "time": "time?",
    "key": "any",
    "value": "any",
    "headers": {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
}
BATCH_JOB: Final = {
    "sink": "text",
    "topic": "text",
    "batch": "any",
    "query": "text?",
    "rows": "count?",
    "transactions": "count",
    "committed": "count",
    "already_committed": "count",
    "lost": "texts",
    "unknown": "texts",
    "error": "text?",
    "marked_done": "flag",
    "message": "text",
}
LETTER: Final = {
    "topic": "text?",
    "partition": "count?",
    "offset": "count?",
    "delivery_count": "count?",
    "message": "text?",
    "time": "time?",
    "redelivered": "any",
    "key": "any",
    "value": "any",
    "dead_letter_partition": "count",
    "dead_letter_offset": "count",
    "headers": {"type": "array"},
}
DAMAGE: Final = {
    "severity": "text",
    "partition": "text?",
    "path": "text?",
    "position": "count?",
    "bytes": "count?",
    "first_offset": "count?",
    "end_offset": "count?",
    "what": "text",
    "at_next_start": "text?",
    "choices": many({"action": "text", "cost": "text"}),
}
PROBLEM: Final = {
    "path": "text",
    "position": "count?",
    "bytes": "count",
    "first_offset": "count?",
    "end_offset": "count?",
    "what": "text",
}
REPAIRED: Final = {
    "data_directory": "text",
    "dry_run": "flag",
    "healthy": "flag",
    "moved": many({"from": "text", "to": "text"}),
    "metadata": many(DAMAGE),
    "partitions": many(
        {
            "partition": "text",
            "repaired": many(PROBLEM),
            "left": many({**PROBLEM, "reason": "text"}),
            "lost_offsets": "count",
            "kept": "texts",
            "error": "text?",
        }
    ),
    "left": many(DAMAGE),
}
VERIFIED: Final = {
    "data_directory": "text",
    "was_clean": "flag",
    "healthy": "flag",
    "partitions": many(
        {
            "partition": "text",
            "log_start_offset": "count",
            "log_end_offset": "count",
            "bytes": "count",
            "batches": "count",
            "records": "count",
        }
    ),
    "findings": many(DAMAGE),
}
TRANSACTION: Final = {"transactional_id": "text", "producer_id": "integer", "state": "text", "coordinator": "count"}
OPEN: Final = {
    **TRANSACTION,
    "producer_epoch": "integer",
    "age_ms": "count?",
    "timeout_ms": "count",
    "partitions": "texts",
}
FINDING: Final = {
    "anomaly": "text",
    "summary": "text",
    "proofs": many({"line": "count", "statement": "text"}),
}
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
QUOTA_OF: Final = {"~user": "text", "~client-id": "text", "~ip": "text"}
SETTING: Final = {"name": "text", "value": "text?", "source": "text"}
NAMED_PROFILE: Final = {"name": "text", "in_use": "flag"}
