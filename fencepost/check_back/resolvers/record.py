"""A resolver that reads a decision from the cluster itself: the latest committed record under a key decides.

The record is JSON with a list `tokens` of committed transactions. Its writer prepares transactions, then commits one
record that lists them, and prepares the next ones after that. So a transaction that began before the latest record
was appended, and is not in its list, will be in none.
"""

from __future__ import annotations

from typing import Final

from fencepost.check_back.decided import TOPIC_PREFIX, sink_of
from fencepost.check_back.question import Answer, Question, RecordReader, ResolverUnreachable
from fencepost.check_back.settings import ResolverSettings
from fencepost.protocol.checked_json import parse_object

CLOCK_SKEW_MS: Final = 5_000
"""How far apart the clocks of two brokers may be: one has set the record's time, another the transaction's start."""


class RecordResolver:
    """settings.options: `topic`, with one partition; `key`, by default the sink that the transactional id names, else
    the topic's name after `fencepost-sink-`."""

    def __init__(self, settings: ResolverSettings, records: RecordReader) -> None:
        self._name = settings.name
        self._topic = settings.options["topic"]
        self._key = settings.options.get("key")
        self._records = records

    async def ask(self, question: Question) -> Answer:
        key = self._key_of(question)
        latest = await self._records.latest(self._topic, key.encode())
        if latest is None or latest.value is None:
            return Answer.UNKNOWN
        tokens = self._tokens(latest.value, key)
        if str(question.token) in tokens:
            return Answer.COMMIT
        # A producer's clock proves no order.
        is_later = latest.is_append_time and latest.timestamp_ms > question.started_ms + CLOCK_SKEW_MS
        return Answer.ABORT if is_later else Answer.UNKNOWN

    async def close(self) -> None:
        pass  # the reader is its maker's to close

    def _key_of(self, question: Question) -> str:
        if self._key is not None:
            return self._key
        sink = sink_of(question.token.transactional_id)
        return self._topic.removeprefix(TOPIC_PREFIX) if sink is None else sink

    def _tokens(self, value: bytes, key: str) -> set[str]:
        try:
            return set(parse_object(value).texts("tokens"))
        except ValueError as error:
            raise self._unreadable(key, str(error)) from None

    def _unreadable(self, key: str, what: str) -> ResolverUnreachable:
        return ResolverUnreachable(
            f"resolver {self._name}: the latest record of {self._topic} under the key {key} is no decision: "
            f"{what}; look which program writes there, or correct topic and key"
        )
