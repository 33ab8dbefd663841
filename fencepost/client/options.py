"""Options of a client by the names of kafka-python: users of two-phase commits give them, and have them from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.log_in import Credentials
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.protocol.sasl_login import MECHANISMS

DEFAULT_PORT: Final = 9092
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROXIES: Final = ("proxy_url", "socks5_proxy")
KNOWN: Final = frozenset(
    {
        *("client_id", "bootstrap_timeout_ms", "request_timeout_ms", "security_protocol"),
        *("ssl_context", "ssl_check_hostname", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"),
        *("ssl_crlfile", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"),
        *PROXIES,
        # Without effect: they tune kafka-python's own machinery, or a mechanism that is refused.
        *("connections_max_idle_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms"),
        *("max_in_flight_requests_per_connection", "receive_message_max_bytes", "receive_buffer_bytes"),
        *("send_buffer_bytes", "socket_options", "metadata_max_age_ms", "client_dns_lookup", "api_version", "selector"),
        *("sasl_kerberos_name", "sasl_kerberos_service_name", "sasl_kerberos_domain_name", "metric_reporters"),
        *("metrics_num_samples", "metrics_sample_window_ms", "kafka_client"),
    }
)


def addresses_of(bootstrap: str, default_port: int | None = DEFAULT_PORT) -> list[Address]:
    """The addresses in `host:port,host:port`. default_port: of an address without one. Raises ValueError."""
    found = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if default_port is not None and (not colon or port.endswith("]")):
            host, port = text.strip(), str(default_port)
        if not host or not (port.isascii() and port.isdecimal()):
            raise ValueError(f"{bootstrap!r} is no address of a broker: give host:port, such as localhost:9092")
        found.append(Address(host.strip("[]"), int(port)))
    return found


def check_options(given: Mapping[str, Any]) -> None:
    """Raises ValueError for options that cannot be served. Reads no file."""
    unknown = sorted(given.keys() - KNOWN)
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such option of a client; the names are those of kafka-python")
    for name in PROXIES:
        if given.get(name):
            raise ValueError(f"{name}: connections through a proxy are not served here")
    protocol = given.get("security_protocol", PROTOCOLS[0])
    if protocol not in PROTOCOLS:
        raise ValueError(f"security_protocol is one of {', '.join(PROTOCOLS)}; got {protocol!r}")
    if not protocol.startswith("SASL"):
        return
    mechanism = given.get("sasl_mechanism")
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism is one of {', '.join(MECHANISMS)}; got {mechanism!r}")
    is_token = mechanism == "OAUTHBEARER"
    for name in ("sasl_oauth_token_provider",) if is_token else ("sasl_plain_username", "sasl_plain_password"):
        if given.get(name) is None:
            raise ValueError(f"sasl_mechanism {mechanism} needs {name}")


def options_of(given: Mapping[str, Any]) -> ClientOptions:
    """The options, which `check_options` has passed. Raises OSError for files of TLS that cannot be used."""
    defaults = ClientOptions()
    protocol = given.get("security_protocol", PROTOCOLS[0])
    return ClientOptions(
        tls=_tls(given) if protocol.endswith("SSL") else None,
        credentials=_credentials(given) if protocol.startswith("SASL") else None,
        client_id=given.get("client_id", defaults.client_id),
        connect_timeout_s=given.get("bootstrap_timeout_ms", defaults.connect_timeout_s * 1000) / 1000,
        answer_timeout_s=given.get("request_timeout_ms", defaults.answer_timeout_s * 1000) / 1000,
    )


def _credentials(given: Mapping[str, Any]) -> Credentials:
    mechanism = given["sasl_mechanism"]
    provider = given.get("sasl_oauth_token_provider")
    if mechanism != "OAUTHBEARER" or provider is None:
        return Credentials(mechanism, given["sasl_plain_username"], given["sasl_plain_password"])

    def token() -> str:
        """With the extensions, of RFC 7628, which follow the token."""
        extensions: Mapping[str, str] = getattr(provider, "extensions", dict)()
        return str(provider.token()) + "".join(f"\x01{name}={value}" for name, value in extensions.items())

    return Credentials(mechanism, "", token)


def _tls(given: Mapping[str, Any]) -> Any:
    """An ssl.SSLContext."""
    if given.get("ssl_context") is not None:
        return given["ssl_context"]
    import ssl  # who connects without TLS, does not import it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = given.get("ssl_check_hostname", True)
    if given.get("ssl_cafile"):
        context.load_verify_locations(given["ssl_cafile"])
    else:
        context.load_default_certs()
    if given.get("ssl_certfile"):
        context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"), given.get("ssl_password"))
    if given.get("ssl_crlfile"):
        context.load_verify_locations(given["ssl_crlfile"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context
