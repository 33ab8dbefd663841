"""A KafkaAdminClient of kafka-python that reports why it cannot connect, and retries no permanent error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from fencepost.two_phase.tokens import Refused

Receive = Callable[[], tuple[bytes, Exception | None]]
"""Receive available data from a socket of kafka-python, and the cause of the connection's end, if it has ended."""

LEAST_BOOTSTRAP_S = 0.2

# Kafka's error codes.
NO_SASL_MECHANISM, NO_LOGIN = 33, 58

# OpenSSL's names of a handshake that the other side will never accept, each with the remedy.
TLS_REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": "the broker's certificate is not trusted: check ssl_cafile",
    "ALERT_CERTIFICATE_REQUIRED": "the broker wants a certificate of this client: give ssl_certfile and ssl_keyfile",
    "ALERT_UNKNOWN_CA": "the broker does not trust this client's certificate: check ssl_certfile",
    "ALERT_BAD_CERTIFICATE": "the broker refuses this client's certificate, or wants one: check ssl_certfile",
}


def connected_admin(options: dict[str, Any], reason_timeout_ms: int) -> Any:
    """Connect a KafkaAdminClient. If it finds no broker, its thread and its sockets are closed, too.

    Raises Refused, and KafkaError with the reason why the last broker could not be reached. The client itself
    retries permanent errors in silence, and brokers answer an address that fails more and more slowly.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError
    from kafka.net.compat import KafkaNetClient

    reasons: list[Exception] = []

    def client_that_asks_first(**config: Any) -> Any:
        client = KafkaNetClient(**config)
        manager = client._manager  # noqa: SLF001  # it has no public way
        bootstrap = manager._do_bootstrap  # noqa: SLF001
        build_transport = manager._build_transport  # noqa: SLF001

        async def transport_that_reads_all(*arguments: Any, **options: Any) -> Any:
            transport = await build_transport(*arguments, **options)
            transport._sock_recv = data_before_the_end(transport._sock_recv)  # noqa: SLF001
            return transport

        async def ask_first(deadline: float | None) -> Any:
            reasons.extend(await _why_not_connected(manager, reason_timeout_ms))
            for reason in reasons:
                _raise_if_refused(reason, options)
            return await bootstrap(deadline and max(deadline, time.monotonic() + LEAST_BOOTSTRAP_S))

        manager._build_transport = transport_that_reads_all  # noqa: SLF001
        manager._do_bootstrap = ask_first  # noqa: SLF001
        return client

    admin = KafkaAdminClient.__new__(KafkaAdminClient)
    try:
        admin.__init__(**options, kafka_client=client_that_asks_first)
    except BaseException as error:
        if hasattr(admin, "_net"):
            admin._closed = False  # noqa: SLF001  # else `close` does nothing
            admin.close()
        if isinstance(error, KafkaTimeoutError) and reasons:
            raise KafkaConnectionError(str(reasons[-1])) from error
        raise
    return admin


def data_before_the_end(receive: Receive) -> Receive:
    """Have a transport of kafka-python deliver the data that it receives together with the end of the connection.

    It would drop them: with the reply that refuses a login, which Apache Kafka sends right before it closes, the reason
    is lost, and the client tries again for ever.
    """
    ends: list[Exception] = []

    def received() -> tuple[bytes, Exception | None]:
        if ends:
            return b"", ends.pop()
        data, end = receive()
        if data and end is not None:
            ends.append(end)  # a socket at its end stays readable, so this is read next
            return data, None
        return data, end

    return received


async def _why_not_connected(manager: Any, timeout_ms: int) -> list[Exception]:
    """Connect to the bootstrap servers, up to the first that answers; returns the errors of the others."""
    reasons: list[Exception] = []
    for broker in manager.cluster.bootstrap_brokers():
        try:
            await manager.get_connection(
                broker.node_id,
                timeout_ms=timeout_ms,
                pop_on_close=False,
                refresh_metadata_on_err=False,
                reset_backoff_on_connect=False,
            )
        except Exception as error:  # noqa: BLE001  # the caller tells them apart
            manager._conns.pop(broker.node_id).close(error)  # noqa: SLF001
            reasons.append(error)
        else:
            return []
    return reasons


def _raise_if_refused(reason: Exception, options: dict[str, Any]) -> None:
    """Raise Refused for a reason that does not pass by itself."""
    errno = getattr(reason, "errno", None)
    if errno == NO_LOGIN:
        user = options.get("sasl_plain_username")
        raise Refused(
            f"the brokers refuse the login of {user}: check sasl_mechanism, sasl_plain_username and "
            f"sasl_plain_password ({own_words(reason)})"
        )
    if errno == NO_SASL_MECHANISM:
        raise Refused(f"the brokers do not take sasl_mechanism {options.get('sasl_mechanism')}: {own_words(reason)}")
    for name, remedy in TLS_REFUSALS.items():
        if name in str(reason):
            raise Refused(f"{remedy} ({own_words(reason)})")
    if isinstance(reason, FileNotFoundError):
        raise Refused("a file that the options ssl_cafile, ssl_certfile or ssl_keyfile name is not there")


def own_words(reason: Exception) -> str:
    """Return the message of an exception of kafka-python, without the names that it repeats."""
    return re.sub(r"^(\[Error -?\d+\] )?(\w+Error: )+", "", str(reason))
