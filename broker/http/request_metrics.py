"""Counts of requests: how many, with which errors, and how long they took; the observer of all dispatchers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from fencepost.broker.http.histogram import RecentHistogram
from fencepost.broker.http.producer_clients import ProducerClients
from fencepost.broker.requests.api import RequestContext, RequestObserver, UsualAnswer
from fencepost.broker.requests.produce_runs import ProduceRun
from fencepost.broker.requests.routes import Api
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.declaration import ArrayOf, Field, StructOf, struct_schema_of
from fencepost.protocol.errors import ErrorCode

PRODUCE: Final = int(ApiKey.PRODUCE)
INIT_PRODUCER_ID: Final = int(ApiKey.INIT_PRODUCER_ID)
MOST_ERRORS_READ: Final = 2_000
"""Of one reply: larger ones are read up to it."""
_MOST_NAMES: Final = 10_000

_now_s = time.perf_counter


class RequestCounts:
    """Counts of one API.

    by_version: requests. total, local: their duration, and that of their first step; the rest they have waited.
    """

    __slots__ = ("by_version", "errors", "local", "remote", "total")

    def __init__(self) -> None:
        self.by_version: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.total = RecentHistogram()
        self.local = RecentHistogram()
        self.remote = RecentHistogram()

    def turn(self) -> None:
        for histogram in (self.total, self.local, self.remote):
            histogram.turn()


class Observation:
    """What is known of a request that is not answered yet.

    topics:      of a Produce, name (or id) and partition count.
    producer_id: whose request it is; negative for most, which repeat an earlier one or have no producer.
    """

    __slots__ = ("begun_s", "producer_id", "topics", "waits_s")

    def __init__(self) -> None:
        self.begun_s = _now_s()
        self.waits_s = 0.0
        self.producer_id = -1
        self.topics: list[tuple[str | bytes, int]] | None = None


class RequestMetrics:
    """Counts all requests, shows the clients of producers to `ProducerClients`, and passes requests on to another
    observer, `then`: the request log.

    produced: Produce requests, by name of the topic, or its id; each counts once for each of its partitions.
    produced_before: those to topics that are deleted.
    """

    def __init__(self, clients: ProducerClients) -> None:
        self.by_api: dict[str, RequestCounts] = {}
        self.produced: Counter[str | bytes] = Counter()
        self.produced_before = 0
        self.then: RequestObserver | None = None
        self._clients = clients

    def begun(self, api: Api, context: RequestContext, request: Any) -> None:
        observation = context.observation = Observation()
        if api.key == PRODUCE:
            observation.topics = [
                (topic.name or topic.topic_id, len(topic.partition_data)) for topic in request.topic_data
            ]
        if context.cached is None:
            observation.producer_id = self._clients.seen(api.key, context.connection, request)
        if self.then is not None:
            self.then.begun(api, context, request)

    def waits(self, context: RequestContext) -> None:
        context.observation.waits_s = _now_s()

    def answered(self, api: Api, context: RequestContext, requests_count: int, answer: Any) -> None:
        observation: Observation = context.observation
        now_s = _now_s()
        counts = self.by_api.get(api.name)
        if counts is None:
            counts = self.by_api[api.name] = RequestCounts()
        counts.by_version[context.api_version] += requests_count
        counts.total.add(now_s - observation.begun_s, requests_count)
        waits_s = observation.waits_s
        counts.local.add((waits_s or now_s) - observation.begun_s, requests_count)
        counts.remote.add(now_s - waits_s if waits_s else 0.0, requests_count)
        if observation.topics is not None:
            for topic, count in observation.topics:
                if topic in self.produced or len(self.produced) < _MOST_NAMES:
                    self.produced[topic] += count * requests_count
        kind = type(answer)
        is_failed = False
        if answer is None or kind is UsualAnswer or kind is ProduceRun:
            is_failed = kind is ProduceRun and answer.failure is not None
            counts.errors[ErrorCode.KAFKA_STORAGE_ERROR if is_failed else 0] += requests_count
        else:
            for code in _errors_of(answer):
                counts.errors[code] += 1
                is_failed = is_failed or code != 0
            if api.key == INIT_PRODUCER_ID:
                observation.producer_id = answer.producer_id
        if observation.producer_id >= 0 and not is_failed:
            self._clients.act(observation.producer_id, context)
        if self.then is not None:
            self.then.answered(api, context, requests_count, answer)

    def turn(self) -> None:
        """Begin a minute."""
        for counts in self.by_api.values():
            counts.turn()

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Forget a topic."""
        self.produced_before += self.produced.pop(name, 0) + self.produced.pop(topic_id, 0)


# Errors in replies

_Reader = Callable[[Any], Iterator[int]]
_READERS: dict[type[Any], _Reader | None] = {}
_ERROR_FIELDS: Final = frozenset({"error_code", "partition_error_code"})


def _errors_of(response: Any) -> Iterator[int]:
    """The error codes of a response and of all that is in it, up to a bound; one 0 for a response without any."""
    read = _reader(type(response))
    codes = iter(()) if read is None else read(response)
    first = next(codes, 0)
    yield first
    yield from islice(codes, MOST_ERRORS_READ)


def _reader(kind: type[Any]) -> _Reader | None:
    """A function that reads the error codes of one kind of message; None if it has no field for them."""
    if kind not in _READERS:
        _READERS[kind] = _new_reader(struct_schema_of(kind).fields)
    return _READERS[kind]


def _new_reader(fields: Iterable[Field]) -> _Reader | None:
    own: list[Callable[[Any], int]] = []
    lists: list[tuple[Callable[[Any], Any], _Reader]] = []
    for field in fields:
        if field.name in _ERROR_FIELDS:
            own.append(attrgetter(field.name))
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
            inner = _reader(field.type.element.python_class)
            if inner is not None:
                lists.append((attrgetter(field.name), inner))
    if not own and not lists:
        return None

    def read(message: Any) -> Iterator[int]:
        for get in own:
            yield int(get(message))
        for get_list, read_part in lists:
            for part in get_list(message) or ():
                yield from read_part(part)

    return read
