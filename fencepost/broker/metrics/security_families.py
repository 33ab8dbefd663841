"""Families about certificates, rights and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.broker.kernel.sliced_work import largest
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, label_text
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.quotas.client_quotas import QuotaUsage
from fencepost.broker.quotas.entities import QuotaKey

COUNTER, GAUGE = Kind.COUNTER, Kind.GAUGE
MOST_CLIENTS: Final = 200
"""Clients with quotas whose use is shown: clients choose their ids."""


def _refused_count(scrape: Scrape) -> Samples:
    # Of a `RightsGate`; any other gate keeps no count.
    audit = getattr(scrape.view.services.gate, "audit", None)
    yield Sample('result="denied"', getattr(audit, "refused_count", 0))


def _acl_count(scrape: Scrape) -> Samples:
    acls = scrape.view.services.acls
    yield Sample("", 0 if acls is None else len(acls.matching(lambda _: True)))


def _certificate_expiries(scrape: Scrape) -> Samples:
    for listener, tls in scrape.view.certificates.items():
        yield Sample(label_text(("listener",), (listener,)), tls.in_force.certificate.not_after_s)


def _quotas(key: QuotaKey, value: Callable[[QuotaUsage], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        found = []
        for count, usage in enumerate(scrape.view.services.client_quotas.usage(), 1):
            if usage.key is key:
                found.append(usage)
            if count % STEP == 0:
                yield None
        if len(found) > MOST_CLIENTS:
            reason = f"the use of {key} of all but {MOST_CLIENTS} clients, which use it most"
            scrape.leave_out("quota_clients", len(found) - MOST_CLIENTS, reason)
        for usage in (yield from largest(MOST_CLIENTS, found, value)):
            yield Sample(label_text(("user", "client_id"), (usage.user, usage.client_id)), value(usage))

    return collect


def _per_s(usage: QuotaUsage) -> float:
    return usage.per_s


def _throttle_ms(usage: QuotaUsage) -> float:
    return usage.throttle_ms


_CLIENT: Final = ("user", "client_id")
_THROTTLED: Final = "How long a client is throttled that uses its quota now, in milliseconds; only while one is set."

SECURITY_FAMILIES: Final = (
    Family(
        "fencepost_authorizations_total",
        COUNTER,
        "Operations that clients were refused for want of a right; what is allowed is not counted.",
        ("result",),
        _refused_count,
    ),
    Family(
        "fencepost_tls_certificate_expiry_timestamp_seconds",
        GAUGE,
        "When the certificate of a listener expires, in seconds since 1970; only of listeners with TLS.",
        ("listener",),
        _certificate_expiries,
    ),
    Family("fencepost_acl_count", GAUGE, "ACLs in force.", (), _acl_count),
)
QUOTA_FAMILIES: Final = (
    Family(
        "kafka_server_produce_byte_rate",
        GAUGE,
        "Bytes a second that clients with a quota produce.",
        _CLIENT,
        _quotas(QuotaKey.PRODUCER_BYTE_RATE, _per_s),
    ),
    Family(
        "kafka_server_produce_throttle_time",
        GAUGE,
        _THROTTLED,
        _CLIENT,
        _quotas(QuotaKey.PRODUCER_BYTE_RATE, _throttle_ms),
    ),
    Family(
        "kafka_server_fetch_byte_rate",
        GAUGE,
        "Bytes a second that clients with a quota consume.",
        _CLIENT,
        _quotas(QuotaKey.CONSUMER_BYTE_RATE, _per_s),
    ),
    Family(
        "kafka_server_fetch_throttle_time",
        GAUGE,
        _THROTTLED,
        _CLIENT,
        _quotas(QuotaKey.CONSUMER_BYTE_RATE, _throttle_ms),
    ),
    Family(
        "kafka_server_request_time",
        GAUGE,
        "Percent of a processor that clients with a quota use.",
        _CLIENT,
        _quotas(QuotaKey.REQUEST_PERCENTAGE, _per_s),
    ),
    Family(
        "kafka_server_request_throttle_time",
        GAUGE,
        _THROTTLED,
        _CLIENT,
        _quotas(QuotaKey.REQUEST_PERCENTAGE, _throttle_ms),
    ),
)
