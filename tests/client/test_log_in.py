"""The client's log-in, with refusals in words. The messages themselves are tests/protocol/test_sasl_login.py's."""

from __future__ import annotations

import pytest

from fencepost.client.errors import LogInRefusedError
from fencepost.client.log_in import Credentials, exchange


def test_an_answer_that_is_not_of_this_exchange_ends_it() -> None:
    steps = exchange(Credentials("SCRAM-SHA-512", "alice", "secret"), "nonce")
    next(steps)
    with pytest.raises(LogInRefusedError, match="the broker cannot be logged in to: its challenge"):
        steps.send(b"r=other,s=W22Z,i=4096")


def test_a_server_that_does_not_know_the_user_is_not_believed() -> None:
    steps = exchange(Credentials("SCRAM-SHA-256", "alice", "secret"), "nonce")
    next(steps)
    steps.send(b"r=nonce1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(LogInRefusedError, match="does not prove"):
        steps.send(b"v=AAAA")


def test_a_mechanism_that_the_client_lacks_is_named() -> None:
    with pytest.raises(LogInRefusedError, match="no mechanism GSSAPI; it has SCRAM-SHA-512"):
        exchange(Credentials("GSSAPI", "alice", "secret"), "nonce")


def test_a_pasted_token_is_sent_without_the_line_end() -> None:
    assert next(exchange(Credentials("PLAIN", "alice", "secret"), "")) == b"\0alice\0secret"
    bearer = exchange(Credentials("OAUTHBEARER", "", "a.b.c\n"), "")
    assert next(bearer) == b"n,,\x01auth=Bearer a.b.c\x01\x01"


def test_a_token_may_be_made_anew_for_each_connection() -> None:
    tokens = iter("ab")
    credentials = Credentials("OAUTHBEARER", "", lambda: next(tokens))
    assert [next(exchange(credentials, ""))[-3:-2] for _ in range(2)] == [b"a", b"b"]


def test_a_password_is_not_in_the_text_of_credentials() -> None:
    assert "secret" not in repr(Credentials("PLAIN", "alice", "secret"))
