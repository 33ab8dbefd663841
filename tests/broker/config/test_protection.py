"""Settings that promise protection are read by some listener, or refused."""

from __future__ import annotations

import pytest

from fencepost.broker.config import ConfigurationError, Entry, load_settings


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.keystore.location", "no listener has the protocol SSL or SASL_SSL"),
        ("sasl.oauthbearer.expected.issuer", "no listener has the protocol SASL_SSL or SASL_PLAINTEXT"),
        ("listener.name.plaintext.ssl.keystore.location", "the listener PLAINTEXT has not the protocol SSL"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "the listener PLAINTEXT has not the protocol SASL_SSL"),
        ("listener.name.outside.ssl.keystore.location", "there is no listener OUTSIDE"),
        ("ssl.engine.factory.class", "nothing here reads this security setting"),
        ("sasl.kerberos.service.name", "nothing here reads this security setting"),
        ("listener.name.plaintext.sasl.kerberos.service.name", "nothing here reads this security setting"),
        ("listener.name.plaintext.plain.sasl.server.callback.handler.class", "nothing here reads this"),
        ("listener.name.plaintext.plain.ssl.keystore.location", "nothing here reads this"),
        ("delegation.token.master.key", "nothing here reads this security setting"),
    ],
)
def test_settings_that_promise_protection_and_do_nothing_are_refused(name: str, reason: str) -> None:
    (problem,) = problems_of(environment={}, options=[Entry(name, "x", "broker.properties:1")])
    assert problem.startswith(f"broker.properties:1: {name}: ")
    assert reason in problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${file:/nowhere/at all}", "the file /nowhere/at all cannot be read: No such file or directory"),
        ("${env:NO_SUCH_VARIABLE}", "the environment has no variable NO_SUCH_VARIABLE"),
    ],
)
def test_a_secret_that_cannot_be_read_is_refused_at_start(text: str, reason: str) -> None:
    problems = problems_of(assignments=[f"ssl.key.password={text}"])
    assert f"--set: ssl.key.password: {reason}" in problems


def test_a_listener_with_tls_needs_a_certificate() -> None:
    (problem,) = problems_of(assignments=["listeners=OUTSIDE://:1", "listener.security.protocol.map=OUTSIDE:SASL_SSL"])
    assert "OUTSIDE has the protocol SASL_SSL, but no certificate; set ssl.keystore.location" in problem
