"""The client's side of a log-in, against SCRAM of another library, and against the text of the RFCs."""

from __future__ import annotations

import hashlib

import pytest
from scramp import ScramMechanism

from fencepost.protocol.sasl_login import MAXIMUM_ITERATIONS, Login, LoginError, escaped_name, login, salted_password

NONCE = "rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["user", "a,b=c", "Zoë"])
@pytest.mark.parametrize("password", ["pencil", "p,=ä", "long " * 40])
def test_scram_of_another_library_lets_the_client_in(mechanism: str, user: str, password: str) -> None:
    server_mechanism = ScramMechanism(mechanism=mechanism)
    keys = server_mechanism.make_auth_info(password, iteration_count=4096)
    server = server_mechanism.make_server(lambda _: keys)
    client = login(mechanism, user, password, None, NONCE)
    server.set_client_first(next(client).decode())
    server.set_client_final(client.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        client.send(server.get_server_final().encode())


def test_the_example_of_rfc_7677() -> None:
    client = login("SCRAM-SHA-256", "user", "pencil", None, NONCE)
    assert next(client) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    whole_nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert (
        client.send(f"r={whole_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
        == f"c=biws,r={whole_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    with pytest.raises(StopIteration):
        client.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_an_extension_of_kafka_names_a_delegation_token_and_the_proof_covers_it() -> None:
    client = login("SCRAM-SHA-256", "user", "pencil", None, NONCE, is_delegated=True)
    assert next(client) == f"n,,n=user,r={NONCE},tokenauth=true".encode()
    plain = login("SCRAM-SHA-256", "user", "pencil", None, NONCE)
    next(plain)
    challenge = f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert client.send(challenge) != plain.send(challenge)


def _challenged(challenge: str) -> Login:
    client = login("SCRAM-SHA-256", "user", "pencil", None, NONCE)
    next(client)
    client.send(challenge.encode())
    return client


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "r=other,s=c2FsdA==,i=4096",
        f"r={NONCE}x,s=c2FsdA==,i=0",
        f"r={NONCE}x,s=c2FsdA==,i={MAXIMUM_ITERATIONS + 1}",
        f"r={NONCE}x,i=4096",
        f"r={NONCE}x,s=!,i=4096",
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: str) -> None:
    with pytest.raises(LoginError):
        _challenged(challenge)


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    client = _challenged(f"r={NONCE}x,s=c2FsdA==,i=4096")
    with pytest.raises(LoginError, match="prove"):
        client.send(b"v=" + hashlib.sha256(b"guess").hexdigest().encode())


def test_an_error_of_the_broker_is_shown_in_its_words() -> None:
    client = _challenged(f"r={NONCE}x,s=c2FsdA==,i=4096")
    with pytest.raises(LoginError, match="it says invalid-proof"):
        client.send(b"e=invalid-proof")


def test_a_salted_password_has_the_length_of_the_digest() -> None:
    assert len(salted_password("SCRAM-SHA-256", "secret", b"salt", 4096)) == 32
    assert len(salted_password("SCRAM-SHA-512", "secret", b"salt", 4096)) == 64


def test_names_are_escaped_in_scram_only() -> None:
    assert escaped_name("a=b,c") == "a=3Db=2Cc"
    assert next(login("PLAIN", "a=b,c", "secret", None, NONCE)) == b"\0a=b,c\0secret"


def test_a_refused_token_is_answered_so_that_the_reason_comes() -> None:
    client = login("OAUTHBEARER", "", "", lambda: "TOKEN", NONCE)
    assert next(client) == b"n,,\x01auth=Bearer TOKEN\x01\x01"
    assert client.send(b'{"status":"invalid_token"}') == b"\x01"
