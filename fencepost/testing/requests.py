"""The requests to a broker under test: their properties for tests, and the log that keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.schema import decode
from fencepost.testing.apis import API_NAMES, TopicName, named_partitions

MOST_REQUESTS = 20_000
MOST_BYTES = 32 * 1024 * 1024
LARGEST_KEPT_REPLY_BYTES = 16 * 1024

WAITING = "waits"
ANSWERED = "answered"


class Passing(Protocol):
    """A request as faults see it."""

    @property
    def api_key(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def groups(self) -> list[str]: ...
    @property
    def partitions(self) -> list[tuple[str, int | None]]: ...


@dataclass(slots=True)
class SeenRequest:
    """A request that the broker has got.

    at_ms:     the broker's wall time at its arrival, in milliseconds since 1970.
    outcome:   `answered`, `waits` for its reply, or the effect of a fault on it.
    fields:    the request, decoded: `fields.transactional_id`.
    reply:     the reply, decoded; None for large ones, and before it is made.
    """

    number: int
    at_ms: int
    api_key: int
    version: int
    client_id: str | None
    connection_id: int
    body: bytes
    outcome: str = WAITING
    answer: bytes | None = None
    named: list[tuple[str, int | None]] | None = None
    decoded: Any = None

    @property
    def api(self) -> str:
        """The name of the API, such as `EndTxn`."""
        return API_NAMES[self.api_key]

    @property
    def fields(self) -> Any:
        if self.decoded is None:
            self.decoded = decode(REQUESTS[self.api_key], self.body, self.version)
        return self.decoded

    @property
    def reply(self) -> Any:
        if self.answer is None:
            return None
        _, position = read_response_header(self.answer, response_header_version(self.api_key, self.version))
        return decode(RESPONSES[self.api_key], self.answer, self.version, position)

    @property
    def error(self) -> str | None:
        """The first error in the reply, such as `PRODUCER_FENCED`; None without one, or without a reply."""
        code = _first_error(self.reply)
        return None if code is None else ErrorCode(code).name

    @property
    def transactional_id(self) -> str | None:
        if self.api_key not in WITH_TRANSACTIONAL_ID:
            return None
        fields = self.fields
        return (
            getattr(fields, "transactional_id", None) or getattr(fields, "v3_and_below_transactional_id", None) or None
        )

    @property
    def groups(self) -> list[str]:
        if self.api_key not in WITH_GROUP:
            return []
        fields = self.fields
        if getattr(fields, "group_id", ""):
            return [fields.group_id]
        return [getattr(group, "group_id", group) for group in getattr(fields, "groups", None) or ()]

    @property
    def partitions(self) -> list[tuple[str, int | None]]:
        """Topics and partitions that the request names."""
        return self.name_partitions(lambda _: None) if self.named is None else self.named

    def name_partitions(self, topic_name: TopicName) -> list[tuple[str, int | None]]:
        if self.named is None:
            self.named = list(named_partitions(self.api_key, self.fields, topic_name))
        return self.named

    def __str__(self) -> str:
        about = [] if self.transactional_id is None else [f"transactional_id={self.transactional_id!r}"]
        about += [f"group={group!r}" for group in self.groups]
        about += sorted({topic if index is None else f"{topic}-{index}" for topic, index in self.partitions})[:4]
        error = self.error
        outcome = self.outcome if error is None else f"{self.outcome} {error}"
        return f"{self.api} {' '.join(about)}{' ' if about else ''}from {self.client_id!r}: {outcome}"


WITH_TRANSACTIONAL_ID = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
WITH_GROUP = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)


class RequestLog:
    """The latest requests, within bounds of number and memory."""

    def __init__(self) -> None:
        self._seen: deque[SeenRequest] = deque(maxlen=MOST_REQUESTS)
        self._bytes = 0
        self._next_number = 1

    def add(self, make: Callable[[int], SeenRequest]) -> SeenRequest:
        """Keep a request. make: makes it, with its number."""
        seen = make(self._next_number)
        self._next_number += 1
        self._bytes += len(seen.body)
        if len(self._seen) == MOST_REQUESTS:
            self._bytes -= len(self._seen[0].body)
        self._seen.append(seen)
        while self._bytes > MOST_BYTES and len(self._seen) > 1:
            self._bytes -= len(self._seen.popleft().body)
        return seen

    def latest(self) -> list[SeenRequest]:
        return list(self._seen)


def _first_error(message: Any) -> int | None:
    """Return the first error code in a reply or in its parts; None without any."""
    pending = [message]
    while pending:
        one = pending.pop(0)
        for name in getattr(type(one), "__annotations__", ()):
            value = getattr(one, name)
            if name.endswith("error_code") and value:
                return int(value)
            if isinstance(value, list):
                pending += [item for item in value if hasattr(type(item), "__annotations__")]
    return None
