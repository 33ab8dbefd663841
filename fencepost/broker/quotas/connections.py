"""Bounds on connections and on the rate of new ones: over all listeners, of one listener, and of one address.

Source: KIP-402, KIP-612; Kafka's ConnectionQuotas. One deviation: a connection beyond a bound is closed; Kafka leaves
it unaccepted, and its client may wait for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from fencepost.broker.config import Settings
from fencepost.broker.kernel.clock import Clock, steady
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.quotas.addresses import address_of
from fencepost.broker.quotas.client_quotas import MAXIMUM_RATE_COUNT, ClientQuotas
from fencepost.broker.quotas.rates import SampledRate, TokenBucket
from fencepost.broker.storage.descriptors import Descriptors

log = get_logger(__name__)

HOST_LOOK_UP = Place("look-up of the hosts that have limits of their own", Policy.RETRY)

MAX_CONNECTIONS, CREATION_RATE = "max.connections", "max.connection.creation.rate"
BROKER = ""
"""In place of a listener's name: all listeners together."""


class AdmissionDecision(NamedTuple):
    """Decision about a new connection.

    delay_ms: time until its first bytes are read.
    refusal:  the reason why it is closed after that, in words; None when it is served.
    is_full:  whether that is because of the number of all connections: it may be served in place of another.
    """

    delay_ms: int = 0
    refusal: str | None = None
    is_full: bool = False


class ConnectionQuotas:
    """The open connections, and the rates of new ones, on all listeners of this broker."""

    def __init__(self, settings: Settings, client_quotas: ClientQuotas, clock: Clock, descriptors: Descriptors) -> None:
        self._settings = settings
        self._descriptors = descriptors
        self._client_quotas = client_quotas
        self._clock = steady(clock)
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._window_count = settings.quota_window_num
        self._count_by_listener: Counter[str] = Counter()
        self._count_by_host: Counter[str] = Counter()
        self._buckets: dict[str, TokenBucket] = {}
        self._rates: dict[str, SampledRate] = {}
        self._overrides_text = ""
        self._overrides: Mapping[str, int] = {}
        self._looking_up: asyncio.Future[None] | None = None

    def admit(self, listener: str, host: str) -> AdmissionDecision:
        """Count a new connection and decide about it; the caller calls `closed` at its end, also when it is refused."""
        settings = self._settings
        self._count_by_listener[BROKER] += 1
        self._count_by_listener[listener] += 1
        self._count_by_host[host] += 1
        descriptors, count = self._descriptors, self._count_by_listener[BROKER]
        descriptors.connected(count)
        if count > descriptors.connection_limit:
            return self._full(
                listener,
                host,
                f"the system's limit of open files ({descriptors.limit}) leaves room for "
                f"{descriptors.connection_limit} connections; raise it, such as with `ulimit -n`",
            )
        for name, most in (
            (BROKER, settings.max_connections),
            (listener, settings.of_listener(MAX_CONNECTIONS, listener)),
        ):
            if most is not None and self._count_by_listener[name] > most:
                refusal = f"max.connections ({most}) are open" + (f" on {name}" if name else "")
                return self._full(listener, host, refusal) if name == BROKER else AdmissionDecision(refusal=refusal)
        now_ms = self._clock.now_ms()
        throttle_ms = self._over_rate_of_host_ms(host, now_ms)
        if throttle_ms:
            return AdmissionDecision(throttle_ms, "connection_creation_rate of this address is exceeded")
        most_of_host = self._most_of_host(host)
        if self._count_by_host[host] > most_of_host:
            return AdmissionDecision(refusal=f"max.connections.per.ip ({most_of_host}) are open from this address")
        return AdmissionDecision(
            max(
                self._wait_for_rate_ms(BROKER, settings.max_connection_creation_rate, now_ms),
                self._wait_for_rate_ms(listener, settings.of_listener(CREATION_RATE, listener), now_ms),
            )
        )

    def _full(self, listener: str, host: str, refusal: str) -> AdmissionDecision:
        """Refuse a connection because of the number of all; for good if its address or its listener has its own number
        of them, too.
        """
        most = self._settings.of_listener(MAX_CONNECTIONS, listener)
        has_room = most is None or self._count_by_listener[listener] <= most
        return AdmissionDecision(
            refusal=refusal, is_full=has_room and self._count_by_host[host] <= self._most_of_host(host)
        )

    def closed(self, listener: str, host: str) -> None:
        """Count the end of a connection."""
        for counter, name in (
            (self._count_by_listener, BROKER),
            (self._count_by_listener, listener),
            (self._count_by_host, host),
        ):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
        self._descriptors.connected(self._count_by_listener[BROKER])

    def settings_changed(self) -> None:
        """Apply a change of `max.connections.per.ip.overrides`; it takes effect when its hosts are looked up."""
        text = self._settings.max_connections_per_ip_overrides
        if text != self._overrides_text:
            self.close()
            self._overrides_text = text
            self._looking_up = HOST_LOOK_UP.start_retrying(partial(self._look_up, text))

    def close(self) -> None:
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None

    async def _look_up(self, text: str) -> None:
        overrides = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            host, _, count = part.rpartition(":")
            address = await address_of(host.strip())
            if address is None:
                log.error("setting_ignored", reason=f"max.connections.per.ip.overrides: {host} has no address")
            else:
                overrides[address] = int(count)
        self._overrides = overrides

    def _most_of_host(self, host: str) -> int:
        most = self._overrides.get(host)
        return self._settings.max_connections_per_ip if most is None else most

    def _wait_for_rate_ms(self, name: str, rate_per_s: int | None, now_ms: int) -> int:
        """Return the wait of a connection for its turn, in ms."""
        if rate_per_s is None:
            self._buckets.pop(name, None)
            return 0
        bucket = self._buckets.get(name)
        if bucket is None:
            burst_s = self._window_ms * self._window_count / 1000
            bucket = self._buckets[name] = TokenBucket(burst_s=burst_s, rate_per_s=rate_per_s, now_ms=now_ms)
        bucket.owed_ms(rate_per_s, now_ms)
        bucket.take(1)
        return bucket.owed_ms(rate_per_s, now_ms)

    def _over_rate_of_host_ms(self, host: str, now_ms: int) -> int:
        """Return the delay of an address over its rate, in ms, at most a window; 0 below the rate."""
        limit_per_s = self._client_quotas.connection_rate_limit(host)
        if limit_per_s is None:
            return 0
        rate = self._rates.get(host)
        if rate is None:
            if len(self._rates) >= MAXIMUM_RATE_COUNT:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[host] = SampledRate(window_ms=self._window_ms, window_count=self._window_count)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit_per_s, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)  # a refused connection does not count
        return min(throttle_ms, self._window_ms)
