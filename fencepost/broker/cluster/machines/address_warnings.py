"""Warnings about the addresses of a cluster: those that others cannot use, and ways between machines without TLS."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.postgres.connections import PostgresAddress
from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.listeners import inter_broker_listener
from fencepost.broker.kernel.addresses import is_loopback
from fencepost.broker.kernel.events import get_logger

log = get_logger(__name__)

VERIFIED: Final = ("verify-ca", "verify-full")
WITHOUT_TLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT")
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def warn_of_addresses(settings: Settings, address: PostgresAddress, location: ObjectLocation) -> None:
    """Log addresses that an operator may want to change, although they work. Loopback addresses are not warned of."""
    _warn_of_loopback(settings, address)
    _warn_of_brokers(settings)
    _warn_of_database(address)
    _warn_of_objects(location)


def _warn_of_loopback(settings: Settings, address: PostgresAddress) -> None:
    """Warn of an advertised loopback address, which other machines cannot use, unless PostgreSQL is on this one."""
    if all(is_loopback(host) for host in address.hosts):
        return
    for listener in parse_listeners(settings):
        advertised = listener.advertised or listener
        if is_loopback(advertised.host):
            log.warning(
                "loopback_address_advertised",
                listener=listener.name,
                address=f"{advertised.host}:{advertised.port}",
                reason="on another machine it is that machine: clients and brokers there do not reach this broker",
                remedy="set advertised.listeners (FENCEPOST_ADVERTISED_LISTENERS) to an address of this machine",
            )


def _warn_of_brokers(settings: Settings) -> None:
    listeners = parse_listeners(settings)
    listener = inter_broker_listener(settings, listeners)
    advertised = listener.advertised or listener
    if listener.protocol in WITHOUT_TLS and not is_loopback(advertised.host):
        log.warning(
            "brokers_without_tls",
            listener=listener.name,
            protocol=str(listener.protocol),
            reason="brokers of the cluster send each other requests of clients and transactions over it",
            remedy="set security.inter.broker.protocol or inter.broker.listener.name to a listener with SSL or "
            "SASL_SSL, or let a private network protect it",
        )


def _warn_of_database(address: PostgresAddress) -> None:
    mode = dict(parse_qsl(urlsplit(address.url).query)).get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if mode not in VERIFIED and not all(map(is_loopback, address.hosts)):
        log.warning(
            "database_not_verified",
            at=address.shown,
            sslmode=mode,
            reason="between this machine and PostgreSQL, records can be read and changed by others on the network",
            remedy="add sslmode=verify-full&sslrootcert=FILE to fencepost.cluster.url",
        )


def _warn_of_objects(location: ObjectLocation) -> None:
    endpoint = location.endpoint or next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    parts = urlsplit(endpoint)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning(
            "objects_without_tls",
            at=f"{parts.hostname}",
            reason="records are sent to the object store, and read from it, without TLS",
            remedy="give fencepost.cluster.objects an endpoint with https://",
        )
