"""The differences that stay, each under the name by which docs/differences-from-kafka.md says why.

A test holds that none is undeclared, that each declared one still exists, and that the page explains exactly these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fencepost.protocol.errors import ErrorCode
from tests.differences.comparison import NOTHING, Deviation

UNKNOWN_SERVER_ERROR = -1
WHAT_IS_WRONG = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
)
"""Instead of UNKNOWN_SERVER_ERROR; a request that Kafka stumbles over is never said to have succeeded."""
REFUSED_CHANGE = 42
ANYTHING = ("anything",)


class Declared(NamedTuple):
    """Where a difference shows: patterns with * for theme, situation and path; `name` is its heading in the page.

    kafka:     what Kafka says there, where only that is meant.
    fencepost: what Fencepost says instead, where it may be nothing else.
    """

    name: str
    theme: str
    situation: str
    path: str = "*"
    kafka: tuple[Any, ...] = ANYTHING
    fencepost: tuple[Any, ...] = ANYTHING

    def covers(self, deviation: Deviation) -> bool:
        return (
            fnmatchcase(deviation.theme, self.theme)
            and fnmatchcase(deviation.situation, self.situation)
            and fnmatchcase(deviation.path, self.path)
            and (self.kafka is ANYTHING or deviation.kafka in self.kafka)
            and (self.fencepost is ANYTHING or deviation.fencepost in self.fencepost)
        )


DECLARED: tuple[Declared, ...] = (
    Declared("apis", "protocol", "*", "api_keys.24.max_version"),
    Declared("features", "protocol", "*", "*_features.eligible.leader.replicas.version"),
    Declared("features", "protocol", "*", "*_features.kraft.version"),
    Declared("features", "protocol", "*", "supported_features.metadata.version.min_version"),
    Declared("api-versions-of-the-future", "protocol", "the same with an unreadable body"),
    Declared("api-versions-of-the-future", "protocol", "api versions of the future, header only"),
    Declared("strict-decoding", "protocol", "a client id that is not UTF-8"),
    Declared("strict-decoding", "protocol", "a negative count"),
    Declared("kinds-of-acls", "operations", "DescribeAcls: unknown kinds"),
    Declared("very-large-requests", "protocol", "300,000 topics"),
    Declared("reasons", "*", "*", "*error_message", (NOTHING, None)),
    Declared("unknown-server-error", "*", "*", "*error_code", (UNKNOWN_SERVER_ERROR,), (NOTHING, *WHAT_IS_WRONG)),
    Declared("unknown-server-error", "fetch", "-1 bytes of a partition"),
    Declared("unknown-server-error", "fetch", "-1 bytes in all"),
    Declared("unknown-server-error", "fetch", "an isolation level that does not exist", "*aborted_transactions"),
    Declared("unknown-server-error", "produce", "damaged: an unknown codec", "*log_start_offset"),
    Declared("unknown-server-error", "topics", "metadata: a null name without id"),
    Declared("unknown-server-error", "topics", "describe partitions: an empty name"),
    Declared("unknown-server-error", "share_groups", "offsets: an empty group id"),
    Declared("partial-batches", "produce", "damaged: a batch and half of one"),
    Declared("partial-batches", "produce", "damaged: a batch and one byte"),
    Declared("strict-decoding", "produce", "damaged: a value of a length of -4"),
    Declared("offsets-in-compressed-batches", "produce", "damaged: an offset twice, gzip"),
    Declared("errors-of-records", "produce", "timely: 200 that are too old", "*record_errors"),
    Declared("times-behind-deleted-records", "list_offsets", "a time before which all was deleted"),
    Declared("times-behind-deleted-records", "list_offsets", "only a marker, isolation ?, time 0"),
    Declared("times-behind-deleted-records", "list_offsets", "only a marker, isolation ?, time 1700000000001"),
    Declared("times-on-trust", "list_offsets", "the time of a record that its batch conceals"),
    Declared("named-twice", "produce", "a partition twice"),
    Declared("record-times-of-duplicates", "idempotence", "*", "*log_append_time_ms", ("*",)),
    Declared("record-times-of-duplicates", "transactions", "*", "*log_append_time_ms", ("*",)),
    Declared("record-times-of-duplicates", "generated/*", "*", "*log_append_time_ms", ("*",)),
    Declared("stable-offset-of-a-cut-batch", "transactions", "cut: its first record*", "*last_stable_offset"),
    Declared("producer-ids-of-others", "transactions", "write: with another transactional id"),
    Declared("producer-ids-of-others", "transactions", "write: outside of the transaction"),
    Declared("producer-ids-of-others", "transactions", "offsets: a transactional id never initialized"),
    Declared("transactions-never-begun", "transactions", "list: open for *", "transaction_states*"),
    Declared("errors-end-the-wait", "fetch", "when: an error ends the wait"),
    Declared("scram", "secured/authentication", "SCRAM of an unknown user: *"),
    Declared("scram", "secured/authentication", "SCRAM begins with a mandatory extension: *"),
    Declared("scram", "secured/authentication", "SCRAM with the header y,,: *"),
    Declared(
        "ids-of-hidden-topics", "secured/*", "*AlterShareGroupOffsets*", "responses.*.topic_id", ANYTHING, (NOTHING,)
    ),
    Declared("flush", "*", "*", "*configs.flush.messages.*"),
    Declared("eligible-leader-replicas", "*", "*", "*configs.min.insync.replicas*"),
    Declared("eligible-leader-replicas", "configs", "describe: all brokers", "results..configs"),
    Declared("loggers", "configs", "describe: all loggers"),
    Declared("threads", "configs", "bounds of all brokers: *.threads*", "*", (REFUSED_CHANGE,)),
    Declared("threads", "configs", "bounds of all brokers: num.replica.fetchers", "*", (REFUSED_CHANGE,)),
    Declared("never-answered", "configs", "replace: a topic twice"),
    Declared("never-answered", "share_groups", "offsets: an unknown partition"),
    Declared("internal-topics", "topics", "create: an internal topic"),
    Declared("colliding-names", "topics", "create: names that collide"),
    Declared("colliding-names", "topics", "create: a name that collides, the other way"),
    Declared("ids-of-topics-only-validated", "topics", "create: only validated", "topics.validated.topic_id"),
    Declared("names-beside-ids", "topics", "metadata: by id and by name"),
    Declared("records-without-time", "list_offsets", "no timestamps, the largest timestamp"),
    Declared("heartbeats-until-settled", "*", "*", "heartbeat_interval_ms", (5_000,)),
    Declared("repeated-task-assignments", "streams_groups", "*, has given up", "*_tasks", (NOTHING,)),
    Declared("repeated-task-assignments", "generated/streams_groups-*", "*, has *_* as *", "*_tasks", (NOTHING,)),
    Declared("failed-joins", "classic_groups", "describe: an unknown group*"),
)


def undeclared(deviations: Iterable[Deviation], declared: Sequence[Declared] = DECLARED) -> list[Deviation]:
    """The deviations that no declaration covers."""
    return [deviation for deviation in deviations if not any(one.covers(deviation) for one in declared)]


def obsolete(deviations: Sequence[Deviation], declared: Sequence[Declared] = DECLARED) -> list[Declared]:
    """The declarations that cover nothing any more."""
    return [one for one in declared if not any(one.covers(deviation) for deviation in deviations)]
