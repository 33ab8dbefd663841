"""The client's side of SASL, against scramp's server and the examples of RFC 7677."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from fencepost.console.kafka.errors import LogInRefusedError
from fencepost.console.kafka.log_in import Credentials, exchange, salted_password


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "a,b=c", "Zoë"])
def test_a_server_of_another_library_lets_the_right_password_in(mechanism: str, user: str) -> None:
    server_side = ScramMechanism(mechanism)
    stored = server_side.make_auth_info("secret", iteration_count=4096)
    server = server_side.make_server(lambda _: stored)
    steps = exchange(Credentials(mechanism, user, "secret"), "a-nonce")
    server.set_client_first(next(steps).decode())
    server.set_client_final(steps.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        steps.send(server.get_server_final().encode())


def test_the_proof_is_that_of_the_standard() -> None:
    steps = exchange(Credentials("SCRAM-SHA-256", "user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    assert next(steps) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = steps.send(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    with pytest.raises(StopIteration):
        steps.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "answer",
    [b"", b"r=other,s=W22Z,i=4096", b"r=nonce1,s=W22Z,i=0", b"r=nonce1,s=W22Z,i=99999999", b"r=nonce1,s=!,i=4096"],
)
def test_an_answer_that_is_not_of_this_exchange_ends_it(answer: bytes) -> None:
    steps = exchange(Credentials("SCRAM-SHA-512", "alice", "secret"), "nonce")
    next(steps)
    with pytest.raises(LogInRefusedError):
        steps.send(answer)


def test_a_server_that_does_not_know_the_user_is_not_believed() -> None:
    steps = exchange(Credentials("SCRAM-SHA-256", "alice", "secret"), "nonce")
    next(steps)
    steps.send(b"r=nonce1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(LogInRefusedError, match="could not prove"):
        steps.send(b"v=AAAA")


def test_plain_and_bearer_tokens_are_one_message() -> None:
    assert next(exchange(Credentials("PLAIN", "alice", "secret"), "")) == b"\0alice\0secret"
    bearer = exchange(Credentials("OAUTHBEARER", "", "a.b.c"), "")
    assert next(bearer) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert bearer.send(b'{"status":"invalid_token"}') == b"\x01"


def test_a_password_is_not_in_the_text_of_credentials() -> None:
    assert "secret" not in repr(Credentials("PLAIN", "alice", "secret"))


def test_a_salted_password_is_that_of_the_mechanism() -> None:
    assert len(salted_password("secret", b"salt", 4096, "SCRAM-SHA-256")) == 32
    assert len(salted_password("secret", b"salt", 4096, "SCRAM-SHA-512")) == 64
