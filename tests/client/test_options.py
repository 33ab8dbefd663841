"""Options by the names of kafka-python."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from fencepost.client.log_in import exchange
from fencepost.client.options import addresses_of, check_options, options_of
from fencepost.client.plans import Address

USER = {"security_protocol": "SASL_SSL", "sasl_plain_username": "alice", "sasl_plain_password": "secret"}


class Tokens:
    """A provider as kafka-python's users have one."""

    def __init__(self) -> None:
        self._made = 0

    def token(self) -> str:
        self._made += 1
        return f"token-{self._made}"

    def extensions(self) -> dict[str, str]:
        return {"cluster": "c"}


def test_addresses_have_kafkas_port_unless_they_name_another() -> None:
    assert addresses_of("a, b:1,[::1]:2,[::1]") == [("a", 9092), ("b", 1), ("::1", 2), ("::1", 9092)]
    assert addresses_of("b:1", default_port=None) == [Address("b", 1)]


@pytest.mark.parametrize("text", ["", "a:b", ":1", "a:1,,b:2", "a:\u0661"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address of a broker"):
        addresses_of(text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl_cafil": "x"}, "ssl_cafil: no such option"),
        ({"socks5_proxy": "x"}, "socks5_proxy: connections through a proxy"),
        ({"security_protocol": "TLS"}, "security_protocol is one of PLAINTEXT, .*; got 'TLS'"),
        (USER, "sasl_mechanism is one of .*OAUTHBEARER; got None"),
        ({**USER, "sasl_mechanism": "GSSAPI"}, "got 'GSSAPI'"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "PLAIN needs sasl_plain_username"),
        ({**USER, "sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl_oauth_token_provider"),
    ],
)
def test_options_that_cannot_be_served_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_options(given)


def test_times_are_in_milliseconds_and_tuning_has_no_effect() -> None:
    given = {"bootstrap_timeout_ms": 1500, "request_timeout_ms": 2500, "client_id": "c", "retry_backoff_ms": 9}
    check_options(given)
    made = options_of(given)
    assert (made.connect_timeout_s, made.answer_timeout_s, made.client_id) == (1.5, 2.5, "c")
    assert made.tls is None
    assert made.credentials is None


def test_tls_verifies_the_broker_and_its_name_unless_the_name_is_let_off() -> None:
    check_options({**USER, "sasl_mechanism": "PLAIN"})
    made = options_of({**USER, "sasl_mechanism": "PLAIN"})
    assert made.tls is not None
    assert made.tls.verify_mode is ssl.CERT_REQUIRED
    assert made.tls.check_hostname
    assert made.credentials is not None
    assert (made.credentials.mechanism, made.credentials.user) == ("PLAIN", "alice")
    unnamed = options_of({"security_protocol": "SSL", "ssl_check_hostname": False}).tls
    assert unnamed is not None
    assert (unnamed.check_hostname, unnamed.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert options_of({"security_protocol": "SSL", "ssl_context": made.tls}).tls is made.tls


def test_a_provider_makes_a_token_for_each_connection_with_its_extensions() -> None:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Tokens()}
    check_options(given)
    credentials = options_of(given).credentials
    assert credentials is not None
    assert [next(exchange(credentials, "")) for _ in range(2)] == [
        b"n,,\x01auth=Bearer token-1\x01cluster=c\x01\x01",
        b"n,,\x01auth=Bearer token-2\x01cluster=c\x01\x01",
    ]
