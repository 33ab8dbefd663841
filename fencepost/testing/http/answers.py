"""Contents, records, transactions, groups, requests and faults as JSON, and their shapes. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.testing.errors import MisuseError
from fencepost.testing.http.kinds import Anything, Flag, InputError, Listed, Mapped, Nothing, Shape, Text, Whole
from fencepost.testing.methods import Fault
from fencepost.testing.requests import SeenRequest
from fencepost.testing.results import Group, Partition, Record, Transaction

Json = Any

MOST: Final = 1_000_000
INT64: Final = Whole(-(2**63), 2**63 - 1)
COUNT: Final = Whole(0, 2**63 - 1)
TEXT: Final = Text(longest=1_000_000)
ENCODINGS: Final = ("utf-8", "base64")

MOST_BYTES_OF_A_FIELD: Final = 1024
"""A longer field of a request is shown up to here."""
MOST_BYTES_OF_RECORDS: Final = 32 * 1024 * 1024
"""Keys and values in one answer: it ends with the record that goes beyond."""

PARTITION = Shape(
    "Partition", {"topic": (TEXT, "Name of the topic."), "partition": (Nothing(COUNT), "Number; null for all.")}
)
RECORD = Shape(
    "Record",
    {
        "topic": (TEXT, "Name of the topic."),
        "partition": (COUNT, "Number of the partition."),
        "offset": (COUNT, "Offset in the partition."),
        "timestamp_ms": (INT64, "In milliseconds since 1970."),
        "key": (Nothing(TEXT), "In the encoding that was asked for; null without one."),
        "value": (Nothing(TEXT), "In the encoding that was asked for; null for a tombstone."),
        "headers": (
            Listed(Shape("Header", {"name": (TEXT, ""), "value": (Nothing(TEXT), "As the record's value.")}), MOST),
            "In their order.",
        ),
    },
)
TRANSACTION = Shape(
    "Transaction",
    {
        "transactional_id": (TEXT, ""),
        "state": (TEXT, "`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit` or `CompleteAbort`."),
        "is_open": (Flag(), "Whether it holds partitions: `Ongoing`, `PrepareCommit` or `PrepareAbort`."),
        "producer_id": (INT64, ""),
        "producer_epoch": (INT64, ""),
        "timeout_ms": (INT64, "Time after which it is aborted, in milliseconds."),
        "start_ms": (Nothing(COUNT), "Begin of the open transaction, in milliseconds since 1970; null without one."),
        "partitions": (Listed(PARTITION, MOST), "Partitions of the open transaction."),
    },
)
GROUP = Shape(
    "Group",
    {
        "group_id": (TEXT, ""),
        "kind": (TEXT, "`classic`, `consumer`, `share` or `streams`."),
        "state": (TEXT, "By Kafka's names, such as `Stable`."),
        "members": (
            Listed(
                Shape(
                    "Member",
                    {
                        "member_id": (TEXT, ""),
                        "client_id": (TEXT, ""),
                        "partitions": (Listed(PARTITION, MOST), "Assigned partitions."),
                    },
                ),
                MOST,
            ),
            "",
        ),
        "offsets": (
            Listed(
                Shape(
                    "Committed",
                    {
                        "topic": (TEXT, ""),
                        "partition": (COUNT, ""),
                        "offset": (COUNT, "The committed offset."),
                        "lag": (Nothing(COUNT), "Records that are left for a read_committed consumer."),
                    },
                ),
                MOST,
            ),
            "Committed offsets.",
        ),
        "total_lag": (COUNT, "Sum of the lags."),
    },
)
REQUEST = Shape(
    "Request",
    {
        "number": (COUNT, "In the order of arrival, from 1."),
        "at_ms": (INT64, "Arrival by the broker's clock, in milliseconds since 1970."),
        "api": (TEXT, "Name of the API, such as `EndTxn`."),
        "version": (COUNT, "Version of the API."),
        "client_id": (Nothing(TEXT), ""),
        "transactional_id": (Nothing(TEXT), ""),
        "groups": (Listed(TEXT, MOST), "Groups that the request names."),
        "partitions": (Listed(PARTITION, MOST), "Partitions that the request names."),
        "outcome": (TEXT, "`answered`, `waits` for its reply, or the effect of a fault on it."),
        "error": (Nothing(TEXT), "First error in the reply, such as `PRODUCER_FENCED`."),
        "text": (TEXT, "All that in a line."),
        "fields": (
            Anything(),
            "With `fields=true`, the request by Kafka's names with underscores, bytes as `{base64, size}`; else null.",
        ),
        "reply": (Anything(), "With `fields=true`, the reply; null for large ones and before it is made."),
    },
)
FAULT = Shape(
    "Fault",
    {
        "fault": (Whole(1, MOST), "Number of the fault, for its address."),
        "text": (TEXT, "The fault in words, as in a description."),
        "fired": (COUNT, "Requests that it has met."),
        "waiting": (COUNT, "Requests that it holds now."),
        "optional": (Flag(), "Whether the broker may be closed before the fault has fired."),
    },
)
STATES = Mapped(TEXT, MOST)
DONE = Shape("Done", {})


def content(text: str | None, encoding: str, where: str) -> bytes | None:
    """The bytes of a key, value or header. Raises InputError."""
    if text is None:
        return None
    if encoding == "utf-8":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{where} is not base64: encode it, or leave out encoding='base64'") from None


def text_of(found: bytes | None, encoding: str, where: str) -> str | None:
    """A key, value or header as text. Raises MisuseError if it is not UTF-8."""
    if found is None:
        return None
    if encoding == "base64":
        return base64.b64encode(found).decode()
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise MisuseError(f"{where} is not UTF-8: ask with encoding=base64") from None


def record(found: Record, encoding: str) -> Json:
    where = f"of the record {found.topic}-{found.partition} at offset {found.offset}"
    return {
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "timestamp_ms": found.timestamp_ms,
        "key": text_of(found.key, encoding, f"the key {where}"),
        "value": text_of(found.value, encoding, f"the value {where}"),
        "headers": [
            {"name": name, "value": text_of(value, encoding, f"the header {name!r} {where}")}
            for name, value in found.headers
        ],
    }


def page_of_records(found: list[Record], skip: int, limit: int, encoding: str) -> Json:
    """Records after the first `skip`, at most `limit` and about MOST_BYTES_OF_RECORDS of them."""
    page, size = [], 0
    for one in found[skip : skip + limit]:
        page.append(record(one, encoding))
        size += len(one.key or b"") + len(one.value or b"")
        if size > MOST_BYTES_OF_RECORDS:
            break
    end = skip + len(page)
    return {"records": page, "total": len(found), "next_skip": end if page and end < len(found) else None}


def partition(topic: str, number: int | None) -> Json:
    return {"topic": topic, "partition": number}


def transaction(found: Transaction) -> Json:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "is_open": found.is_open,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms,
        "partitions": _partitions(found.partitions),
    }


def group(found: Group) -> Json:
    return {
        "group_id": found.group_id,
        "kind": found.kind,
        "state": found.state,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "partitions": _partitions(member.partitions),
            }
            for member in found.members
        ],
        "offsets": [
            {"topic": where.topic, "partition": where.partition, "offset": offset, "lag": found.lag.get(where)}
            for where, offset in sorted(found.offsets.items())
        ],
        "total_lag": found.total_lag,
    }


def request(seen: SeenRequest, *, with_fields: bool) -> Json:
    return {
        "number": seen.number,
        "at_ms": seen.at_ms,
        "api": seen.api,
        "version": seen.version,
        "client_id": seen.client_id,
        "transactional_id": seen.transactional_id,
        "groups": seen.groups,
        "partitions": [partition(topic, number) for topic, number in seen.partitions],
        "outcome": seen.outcome,
        "error": seen.error,
        "text": str(seen),
        "fields": plain(seen.fields) if with_fields else None,
        "reply": plain(seen.reply) if with_fields else None,
    }


def fault(number: int, found: Fault) -> Json:
    return {
        "fault": number,
        "text": str(found),
        "fired": found.fired,
        "waiting": found.waiting,
        "optional": found.optional,
    }


def plain(value: Any) -> Json:
    """A decoded message as JSON."""
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        shortened = bytes(value[:MOST_BYTES_OF_A_FIELD])
        return {"base64": base64.b64encode(shortened).decode(), "size": len(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    names = getattr(type(value), "__annotations__", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Iterable):
        return [plain(one) for one in value]
    return str(value)


def _partitions(found: Iterable[Partition]) -> list[Json]:
    return [partition(where.topic, where.partition) for where in found]
