"""Client quotas of this broker: stored in the metadata store, looked up and charged per request.

The user is the name of the connection's principal: ANONYMOUS for a client that has not authenticated, as in Kafka.
`broker.quotas.connections` charges addresses.
Source: KIP-13, KIP-124, KIP-219, KIP-546, KIP-599; Kafka's ClientQuotaManager, ClientRequestQuotaManager and
ControllerMutationQuotaManager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fencepost.broker.config import Settings
from fencepost.broker.kernel.clock import Clock, steady
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.quotas.addresses import address_of
from fencepost.broker.quotas.entities import DEFAULT, Entity, QuotaKey, QuotaLimit, entity_of, limit_for
from fencepost.broker.quotas.rates import SampledRate, TokenBucket
from fencepost.protocol.checked_json import Fields

log = get_logger(__name__)

CLIENT_QUOTAS_KEY = "client-quotas"
MAXIMUM_RATE_COUNT = 10_000
RATE_EXPIRY_MS = 3_600_000
NANOSECONDS_PER_PERCENT = 10_000_000  # of a second

Client = tuple[str, str]
"""The client that is charged: principal, such as `User:alice`, and client id."""
Quotas = Mapping[Entity, Mapping[str, float]]
_OF_REQUESTS = frozenset(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}


class QuotaUsage(NamedTuple):
    """The use of one quota. user, client_id: those that share it; empty if all of a kind do.

    per_s: bytes a second, or percent of a processor. throttle_ms: throttle of a client that uses it now.
    """

    key: QuotaKey
    user: str
    client_id: str
    per_s: float
    throttle_ms: int


class ClientQuotas:
    """All quotas, and their usage.

    is_active: whether a quota on requests is set; while none is, requests need not be metered.
    """

    def __init__(self, store: MetadataStore, settings: Settings, clock: Clock) -> None:
        self.is_active = False
        self._clock = steady(clock)
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._window_count = settings.quota_window_num
        self._document: VersionedDocument[Quotas] = VersionedDocument(
            store, CLIENT_QUOTAS_KEY, read=_read, write=_write, may_use_reserve=True
        )
        self._limits: dict[tuple[QuotaKey, Client], QuotaLimit | None] = {}
        self._limited: dict[Client, frozenset[QuotaKey]] = {}  # the quotas on requests of a client
        self._rates: dict[tuple[QuotaKey, Entity], SampledRate] = {}
        self._buckets: dict[Entity, TokenBucket] = {}
        self._connection_rates: dict[str | None, float] = {}
        self._in_force: Quotas | None = None

    async def open(self) -> None:
        """Apply the stored quotas, also those that another node has written since. Raises StorageError."""
        await self._document.load()
        await self._put_in_force()

    @property
    def all(self) -> Quotas:
        return self._document.content

    async def change(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, or remove those whose value is None; they apply from now on. Raises StorageError."""

        def changed(quotas: Quotas) -> Quotas | None:
            before = quotas.get(entity, {})
            after = {key: value for key, value in {**before, **values}.items() if value is not None}
            if after == before:
                return None
            return {
                **{known: quotas[known] for known in quotas if known != entity},
                **({entity: after} if after else {}),
            }

        await self._document.change(changed)
        await self._put_in_force()
        log.info("client_quotas_altered", entity=dict(entity), quotas=dict(self.all.get(entity, {})))

    async def _put_in_force(self) -> None:
        stored = self.all
        if stored is self._in_force:
            return
        self._limits.clear()
        self._limited.clear()
        self.is_active = any(key in quotas for quotas in stored.values() for key in _OF_REQUESTS)

        rates: dict[str | None, float] = {}
        for entity, quotas in stored.items():
            if QuotaKey.CONNECTION_CREATION_RATE in quotas:
                ((_, name),) = entity
                address = None if name is None else await address_of(name)
                if name is None or address is not None:
                    rates[address] = quotas[QuotaKey.CONNECTION_CREATION_RATE]
        if self.all is stored:  # else a later change is being applied
            self._connection_rates, self._in_force = rates, stored

    def connection_rate_limit(self, address: str) -> float | None:
        """The connections per second that an address may open; None without a quota."""
        rates = self._connection_rates
        return rates.get(address, rates.get(DEFAULT)) if rates else None

    def meter(
        self, principal: str, client_id: str | None, *, produced_bytes: int, mute: Callable[[float], None]
    ) -> RequestMeter | None:
        """Begin to meter a request; None if no quota applies to its client.

        produced_bytes: the size of a Produce request, which is charged now; else 0. mute: see `RequestMeter`.
        """
        client = principal, client_id or ""
        limited = self._limited.get(client)
        if limited is None:
            if len(self._limited) >= MAXIMUM_RATE_COUNT:
                self._limited.clear()
            limited = frozenset(key for key in _OF_REQUESTS if self._limit(key, client) is not None)
            self._limited[client] = limited
        if not limited:
            return None
        meter = RequestMeter(self, client, limited, mute)
        if produced_bytes:
            meter.charge_produced(produced_bytes)
        return meter

    # Charging

    def charge(self, key: QuotaKey, client: Client, amount: float) -> int:
        """Charge a client for use; return its throttle, in ms."""
        limit = self._limit(key, client)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms()
        rate = self._rates.get((key, limit.owner))
        if rate is None:
            self._forget_idle(now_ms)
            rate = self._rates[key, limit.owner] = SampledRate(
                window_ms=self._window_ms, window_count=self._window_count
            )
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit.value, now_ms)

    def usage(self) -> Iterator[QuotaUsage]:
        """Yield the usage of each quota whose rate is known."""
        now_ms = self._clock.now_ms()
        for (key, owner), rate in list(self._rates.items()):
            names = dict(owner)
            user, client_id = names.get("user") or "", names.get("client-id") or ""
            limit = limit_for(self.all, key, user=user, client_id=client_id)
            throttle_ms = 0 if limit is None else rate.throttle_ms(limit.value, now_ms)
            yield QuotaUsage(key, user, client_id, rate.per_s(now_ms), throttle_ms)

    def charge_mutations(self, client: Client, count: int, *, is_strict: bool) -> int:
        """Charge a client for creating or deleting partitions; return its throttle, in ms.

        is_strict: refuse requests before the throttle is over, and do not count them.
        """
        limit = self._limit(QuotaKey.CONTROLLER_MUTATION_RATE, client)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms()
        bucket = self._buckets.get(limit.owner)
        if bucket is None:
            if len(self._buckets) >= MAXIMUM_RATE_COUNT:
                del self._buckets[next(iter(self._buckets))]
            burst_s = self._window_count * self._window_ms / 1000
            bucket = self._buckets[limit.owner] = TokenBucket(burst_s=burst_s, rate_per_s=limit.value, now_ms=now_ms)
        owed_ms = bucket.owed_ms(limit.value, now_ms)
        if is_strict and owed_ms:
            return owed_ms
        bucket.take(count)
        return 0 if is_strict else bucket.owed_ms(limit.value, now_ms)

    def refund(self, key: QuotaKey, client: Client, amount: float) -> None:
        """Take back a charge for an amount that was not used after all."""
        limit = self._limit(key, client)
        rate = self._rates.get((key, limit.owner)) if limit is not None else None
        if rate is not None:
            rate.record(-amount, self._clock.now_ms())

    def is_unused(self, key: QuotaKey, client: Client) -> bool:
        """Whether a client has used nothing in the windows that count."""
        limit = self._limit(key, client)
        rate = self._rates.get((key, limit.owner)) if limit is not None else None
        return rate is None or rate.is_unused(self._clock.now_ms())

    def max_burst(self, key: QuotaKey, client: Client) -> float | None:
        """The most that a client can use at one time and stay within its quota; None without a quota."""
        limit = self._limit(key, client)
        if limit is None:
            return None
        return limit.value * (self._window_count - 1) * self._window_ms / 1000

    def longest_request_throttle_ms(self) -> int:
        """The bound on a throttle for processor time, which is paid back in small portions."""
        return self._window_ms

    def _limit(self, key: QuotaKey, client: Client) -> QuotaLimit | None:
        try:
            return self._limits[key, client]
        except KeyError:
            if len(self._limits) >= MAXIMUM_RATE_COUNT:
                self._limits.clear()
            principal, client_id = client
            user = principal.partition(":")[2]
            found = self._limits[key, client] = limit_for(self.all, key, user=user, client_id=client_id)
            return found

    def _forget_idle(self, now_ms: int) -> None:
        """Drop rates of idle clients: clients choose their ids, so the number of rates must be bounded."""
        if len(self._rates) < MAXIMUM_RATE_COUNT:
            return
        self._rates = {name: rate for name, rate in self._rates.items() if now_ms - rate.used_ms < RATE_EXPIRY_MS}
        while len(self._rates) >= MAXIMUM_RATE_COUNT:
            del self._rates[next(iter(self._rates))]


class RequestMeter:
    """Meter of one request of a client with a quota: it counts time from its creation until `finish_timing`.

    mute: called with the seconds for which the connection takes no further request.
    """

    __slots__ = (
        "_busy_ns",
        "_client",
        "_limited",
        "_mute",
        "_muted_ms",
        "_quotas",
        "_resumed_ns",
        "_throttle_ms",
    )

    def __init__(
        self, quotas: ClientQuotas, client: Client, limited: frozenset[QuotaKey], mute: Callable[[float], None]
    ) -> None:
        self._quotas = quotas
        self._client = client
        self._limited = limited
        self._mute = mute
        self._throttle_ms = self._muted_ms = 0
        self._busy_ns = 0
        self._resumed_ns = 0
        if QuotaKey.REQUEST_PERCENTAGE in limited:
            self._resumed_ns = time.perf_counter_ns()

    def charge_produced(self, produced_bytes: int) -> None:
        """Charge Produce requests for their bytes.

        They are charged before their replies: no further one of a client that does not wait for replies is started
        before the throttle is over.
        """
        if QuotaKey.PRODUCER_BYTE_RATE in self._limited:
            self._throttle_ms = self._quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, self._client, produced_bytes)
            if self._throttle_ms:
                self._mute_for(self._throttle_ms)

    def pause_timing(self) -> None:
        """Pause the timing while the handler waits, until `finish`."""
        if self._resumed_ns:
            self._busy_ns += time.perf_counter_ns() - self._resumed_ns
            self._resumed_ns = 0

    @property
    def fetch_limit_bytes(self) -> float | None:
        """The most bytes of one response within the quota, after any wait of the client."""
        return self._quotas.max_burst(QuotaKey.CONSUMER_BYTE_RATE, self._client)

    def charge_fetch(self, records_bytes: int) -> bool:
        """Charge a fetch; return whether the client gets these records now, or has to fetch again after the throttle.

        The first fetch after an idle time always gets them: a single batch may exceed the quota's burst and would never
        be sent otherwise.
        """
        key = QuotaKey.CONSUMER_BYTE_RATE
        if key not in self._limited:
            return True
        is_first = self._quotas.is_unused(key, self._client)
        self._throttle_ms = self._quotas.charge(key, self._client, records_bytes)
        if self._throttle_ms == 0 or is_first:
            return True
        self._quotas.refund(key, self._client, records_bytes)
        return False

    def charge_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Charge mutations; return whether they are allowed now. Without `is_strict` they always are, with a
        throttle."""
        throttle_ms = self._quotas.charge_mutations(self._client, count, is_strict=is_strict)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        return throttle_ms == 0 or not is_strict

    def finish(self) -> int:
        """Charge the time of the request, and mute the connection; return the throttle time for the response, in ms."""
        throttle_ms = self._throttle_ms
        if QuotaKey.REQUEST_PERCENTAGE in self._limited:
            self.pause_timing()
            request_throttle_ms = self._charge_time()
            self._resumed_ns = time.perf_counter_ns()
            throttle_ms = max(throttle_ms, min(request_throttle_ms, self._quotas.longest_request_throttle_ms()))
        if throttle_ms:
            self._mute_for(throttle_ms)
        return throttle_ms

    def finish_timing(self) -> None:
        """Charge the time since `finish`, after the reply is written; it counts towards the client's next request."""
        if self._resumed_ns:
            self.pause_timing()
            self._charge_time()

    def _charge_time(self) -> int:
        busy_ns, self._busy_ns = self._busy_ns, 0
        return self._quotas.charge(QuotaKey.REQUEST_PERCENTAGE, self._client, busy_ns / NANOSECONDS_PER_PERCENT)

    def _mute_for(self, throttle_ms: int) -> None:
        if throttle_ms > self._muted_ms:
            self._muted_ms = throttle_ms
            self._mute(throttle_ms / 1000)


def _read(content: Any) -> Quotas:
    rows = Fields({"quotas": content or []}).objects("quotas")
    return {_read_entity(row.object("entity")): _read_values(row.object("quotas")) for row in rows}


def _read_entity(fields: Fields) -> Entity:
    return entity_of((kind, fields.text_or_none(kind)) for kind in fields)


def _read_values(fields: Fields) -> dict[str, float]:
    return {key: fields.number(key) for key in fields}


def _write(quotas: Quotas) -> Any:
    return [{"entity": dict(entity), "quotas": dict(values)} for entity, values in quotas.items()]
