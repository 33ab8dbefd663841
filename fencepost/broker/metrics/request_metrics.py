"""Counts of requests, their errors and durations; the observer of all dispatchers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from fencepost.broker.metrics.histogram import RecentHistogram
from fencepost.broker.metrics.producer_clients import ProducerClients
from fencepost.broker.produce.produce_runs import ProduceRun
from fencepost.broker.requests.api import RequestContext, RequestObserver, UsualAnswer
from fencepost.broker.requests.routes import Api
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.declaration import ArrayOf, Field, StructOf, struct_schema_of
from fencepost.protocol.errors import ErrorCode

PRODUCE: Final = int(ApiKey.PRODUCE)
INIT_PRODUCER_ID: Final = int(ApiKey.INIT_PRODUCER_ID)
MOST_ERRORS_READ: Final = 2_000
"""Bound on the errors read of one reply; the others are not counted."""
_MOST_NAMES: Final = 10_000

_now_s = time.perf_counter


class Observation:
    """A request that is not answered yet; of most, only the time when it began is known.

    waits_s:     the time when it began to wait; 0.0 if it does not.
    topic_data:  the topics of a Produce.
    producer_id: the request's producer; negative for those that repeat an earlier one, or have no producer.
    """

    waits_s = 0.0
    topic_data: Any = ()
    producer_id = -1

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s


class RequestCounts:
    """Counts of one API, or of one version of it.

    usual_count: answers without an error, which are not in `errors`.
    total, local, remote: durations; of the first step; of the rest, if there was one.
    """

    __slots__ = ("errors", "local", "remote", "requests_count", "total", "usual_count")

    def __init__(self) -> None:
        self.requests_count = 0
        self.usual_count = 0
        self.errors: Counter[int] = Counter()
        self.total = RecentHistogram()
        self.local = RecentHistogram()
        self.remote = RecentHistogram()

    def add(self, other: RequestCounts) -> None:
        """Add the counts of another version."""
        self.requests_count += other.requests_count
        self.usual_count += other.usual_count
        self.errors.update(other.errors)
        for mine, others in ((self.total, other.total), (self.local, other.local), (self.remote, other.remote)):
            mine.merge(others)

    def turn(self) -> None:
        for histogram in (self.total, self.local, self.remote):
            histogram.turn()


class RequestMetrics:
    """Counts all requests, shows the clients of producers to `ProducerClients`, and passes requests on to another
    observer, `then`: the request log.

    produced: Produce requests, by name of the topic, or its id; each counts once for each of its partitions.
    produced_before: those to topics that are deleted.
    """

    def __init__(self, clients: ProducerClients) -> None:
        self.produced: dict[str | bytes, int] = {}
        self.produced_before = 0
        self.then: RequestObserver | None = None
        self._counts: dict[tuple[Api, int], RequestCounts] = {}
        self._clients = clients

    @property
    def by_version(self) -> Mapping[tuple[Api, int], RequestCounts]:
        return self._counts

    def by_api(self) -> dict[str, RequestCounts]:
        """The sums over all versions, by name of the API."""
        found: dict[str, RequestCounts] = {}
        for (api, _), counts in self._counts.items():
            found.setdefault(api.name, RequestCounts()).add(counts)
        return found

    def begun(self, api: Api, context: RequestContext, request: Any) -> None:
        observation = context.observation = Observation(_now_s())
        if api.key == PRODUCE:
            observation.topic_data = request.topic_data
        if context.cached is None:
            observation.producer_id = self._clients.seen(api.key, context.connection, request, context.client_id)
        if self.then is not None:
            self.then.begun(api, context, request)

    def waits(self, context: RequestContext) -> None:
        context.observation.waits_s = _now_s()

    def answered(self, api: Api, context: RequestContext, requests_count: int, answer: Any) -> None:
        observation: Observation = context.observation
        key = api, context.api_version
        try:
            counts = self._counts[key]
        except KeyError:
            counts = self._counts[key] = RequestCounts()
        counts.requests_count += requests_count
        now_s, begun_s, waits_s = _now_s(), observation.begun_s, observation.waits_s
        counts.total.add(now_s - begun_s, requests_count)
        if waits_s:
            counts.local.add(waits_s - begun_s, requests_count)
            counts.remote.add(now_s - waits_s, requests_count)
        else:
            counts.local.add(now_s - begun_s, requests_count)
        for topic in observation.topic_data:
            self._count_produced(topic.name or topic.topic_id, len(topic.partition_data) * requests_count)
        kind = type(answer)
        if kind is UsualAnswer or answer is None or (kind is ProduceRun and answer.failure is None):
            counts.usual_count += requests_count
            is_failed = False
        else:
            is_failed = self._count_errors(counts, answer)
            if api.key == INIT_PRODUCER_ID:
                observation.producer_id = answer.producer_id
        if observation.producer_id >= 0 and not is_failed:
            self._clients.act(observation.producer_id, context)
        if self.then is not None:
            self.then.answered(api, context, requests_count, answer)

    def _count_produced(self, topic: str | bytes, count: int) -> None:
        try:
            self.produced[topic] += count
        except KeyError:
            if len(self.produced) < _MOST_NAMES:
                self.produced[topic] = count
            else:
                self.produced_before += count

    @staticmethod
    def _count_errors(counts: RequestCounts, answer: Any) -> bool:
        """Count the error codes of an answer; return whether there is one."""
        if type(answer) is ProduceRun:
            counts.errors[ErrorCode.KAFKA_STORAGE_ERROR] += 1
            return True
        is_failed = False
        for code in _errors_of(answer):
            counts.errors[code] += 1
            is_failed = is_failed or code != 0
        return is_failed

    def turn(self) -> None:
        """Begin a minute."""
        for counts in self._counts.values():
            counts.turn()

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Forget a topic."""
        self.produced_before += self.produced.pop(name, 0) + self.produced.pop(topic_id, 0)


# Errors in replies

_Reader = Callable[[Any], Iterator[int]]
_READERS: dict[type[Any], _Reader | None] = {}
_ERROR_FIELDS: Final = frozenset({"error_code", "partition_error_code"})


def _errors_of(response: Any) -> Iterator[int]:
    """The error codes of a response and of its parts, up to a bound; one 0 for a response without any."""
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
