"""SCRAM: the vectors of the RFCs, another library's client, and what must not be found out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.hosting.scram_credentials import Credential, ScramMechanism, credential_of
from fencepost.broker.security.sasl.exchange import (
    OTHER_AUTHORIZATION_ID,
    Challenge,
    Found,
    Identified,
    Refused,
)
from fencepost.broker.security.sasl.scram import DIGESTS, ScramExchange, TokenKeys
from fencepost.broker.security.sasl.scram_users import ScramUsers
from tests.support.scram_with_token import TokenClient

MECHANISMS = sorted(DIGESTS)


def credential(mechanism: str, password: str, salt: bytes = b"salt-of-alice", iterations: int = 4096) -> Credential:
    salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)
    return credential_of(ScramMechanism[mechanism.replace("-", "_")], iterations, salt, salted)


def users(mechanism: str = "SCRAM-SHA-256", passwords: Mapping[str, str] | None = None) -> ScramUsers:
    stored = {
        name: {ScramMechanism[mechanism.replace("-", "_")]: credential(mechanism, password)}
        for name, password in (passwords or {"alice": "secret"}).items()
    }
    return ScramUsers(mechanism, ScramMechanism[mechanism.replace("-", "_")], lambda: stored, b"the cluster's secret")


def exchange(known: ScramUsers | None = None, mechanism: str = "SCRAM-SHA-256", nonce: str = "broker") -> ScramExchange:
    return ScramExchange(mechanism, (known or users(mechanism)).find, nonce)


def log_in(name: str, password: str, known: ScramUsers, mechanism: str = "SCRAM-SHA-256") -> tuple[Any, Found]:
    """What another library's client and the broker come to."""
    client = scramp.ScramClient([mechanism], name, password)
    broker = exchange(known, mechanism)
    challenge = broker.evaluate(client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.token.decode())
    return client, broker.evaluate(client.get_client_final().encode())


def test_the_exchange_of_rfc_7677_is_reproduced() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = {"user": {ScramMechanism.SCRAM_SHA_256: credential("SCRAM-SHA-256", "pencil", salt)}}
    known = ScramUsers("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256, lambda: stored, b"secret")
    broker = exchange(known, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert broker.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert broker.evaluate(final) == Identified("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(password=st.text("abcXYZ019 ,=é€", min_size=1), name=st.text("abz,=é", min_size=1))
def test_another_librarys_client_and_the_broker_know_each_other(mechanism: str, password: str, name: str) -> None:
    client = scramp.ScramClient([mechanism], name, password)
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism).make_auth_info(password)
    keys = Credential(iterations, salt, stored_key, server_key)
    stored = {name: {ScramMechanism[mechanism.replace("-", "_")]: keys}}
    known = ScramUsers(mechanism, ScramMechanism[mechanism.replace("-", "_")], lambda: stored, b"secret")
    client, found = log_in(name, password, known, mechanism)
    assert isinstance(found, Identified)
    assert found.name == name
    client.set_server_final(found.token.decode())  # raises for a broker that does not know the password


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(mechanism: str, name: str) -> None:
    _, found = log_in(name, "wrong", users(mechanism), mechanism)
    assert isinstance(found, Refused)
    assert found.message is None, "the text that all mechanisms have"
    assert found.reason == "wrong user or password"
    assert found.user == ("alice" if name == "alice" else None)


def challenge_of(known: ScramUsers, name: str, nonce: str = "broker") -> tuple[str, str]:
    """Salt and iterations in the challenge."""
    answer = exchange(known, nonce=nonce).evaluate(b"n,,n=%s,r=client" % name.encode())
    assert isinstance(answer, Challenge)
    found = re.fullmatch(rb"r=client[^,]+,s=([^,]+),i=(\d+)", answer.token)
    assert found is not None
    return found[1].decode(), found[2].decode()


def test_an_unknown_user_has_a_salt_of_its_own_that_stays() -> None:
    known = users()
    assert challenge_of(known, "nobody", "one") == challenge_of(known, "nobody", "two")
    assert challenge_of(known, "nobody") != challenge_of(known, "another")
    assert challenge_of(users(), "nobody") == challenge_of(known, "nobody"), "after a restart"


@pytest.mark.parametrize("salt", [b"2ygt41lhdmyfvzq6u3o1xakn8e", bytes(range(16)), b"a" * 100])
def test_the_challenge_of_an_unknown_user_looks_like_those_of_others(salt: bytes) -> None:
    keys = credential("SCRAM-SHA-256", "secret", salt, 8192)
    stored = {"alice": {ScramMechanism.SCRAM_SHA_256: keys}}
    made_up, iterations = challenge_of(
        ScramUsers("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256, lambda: stored, b"secret"), "nobody"
    )
    decoded = base64.b64decode(made_up)
    assert iterations == "8192"
    assert len(decoded) == len(salt)
    assert decoded.isalnum() == salt.isalnum()


def test_a_user_of_the_other_mechanism_is_unknown() -> None:
    stored = {"alice": {ScramMechanism.SCRAM_SHA_512: credential("SCRAM-SHA-512", "secret")}}
    assert isinstance(
        log_in("alice", "secret", ScramUsers("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256, lambda: stored, b"s"))[1],
        Refused,
    )


def test_a_changed_password_counts_at_once() -> None:
    stored = {"alice": {ScramMechanism.SCRAM_SHA_256: credential("SCRAM-SHA-256", "before")}}
    known = ScramUsers("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256, lambda: stored, b"secret")
    assert isinstance(log_in("alice", "before", known)[1], Identified)
    stored = {"alice": {ScramMechanism.SCRAM_SHA_256: credential("SCRAM-SHA-256", "after")}}
    assert isinstance(log_in("alice", "before", known)[1], Refused)
    assert isinstance(log_in("alice", "after", known)[1], Identified)


def test_a_client_that_could_bind_the_channel_is_accepted() -> None:
    broker = exchange()
    challenge = broker.evaluate(b"y,,n=alice,r=client")
    assert isinstance(challenge, Challenge)
    assert isinstance(broker.evaluate(final_for(b"n=alice,r=client", challenge.token, b"y,,")), Identified)


def final_for(first_bare: bytes, challenge: bytes, gs2_header: bytes = b"n,,", password: str = "secret") -> bytes:
    """The final message of a client, as RFC 5802 has it."""
    nonce = challenge.split(b",")[0]
    bare = b"c=" + base64.b64encode(gs2_header) + b"," + nonce
    message = first_bare + b"," + challenge + b"," + bare
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt-of-alice", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


def test_the_right_authorization_id_is_accepted() -> None:
    broker = exchange()
    challenge = broker.evaluate(b"n,a=alice,n=alice,r=client")
    assert isinstance(challenge, Challenge)
    final = final_for(b"n=alice,r=client", challenge.token, b"n,a=alice,")
    assert isinstance(broker.evaluate(final), Identified)


def test_another_authorization_id_is_named() -> None:
    found = exchange().evaluate(b"n,a=admin,n=alice,r=client")
    assert found == Refused(OTHER_AUTHORIZATION_ID, "another authorization id")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "none of SCRAM"),
        (b"\xff", "not UTF-8"),
        (b"n,,n=alice", "none of SCRAM"),
        (b"n,,n=,r=client", "none of SCRAM"),
        (b"n,,n=a=2Blice,r=client", "none of SCRAM"),
        (b"n,,n=alice,r=cli ent", "none of SCRAM"),
        (b"n,,n=alice\0,r=client", "none of SCRAM"),
        (b"n,,n=alice,r=client,tokenauth=true", "delegation.token.secret.key is not set"),
        (b"n,,n=alice,r=client,a=b,tokenauth=TRUE", "delegation.token.secret.key is not set"),
        (b"n,,m=ext,n=alice,r=client", "extension"),
        (b"p=tls-unique,,n=alice,r=client", "channel binding"),
        (b"n,,n=alice,r=c" + b",x=y" * 1_000 + b",", "none of SCRAM"),
        (b"n,,n=" + b"a" * 100_000 + b",r=client", "too long"),
    ],
)
def test_a_first_message_that_cannot_be_used_is_refused(first: bytes, reason: str) -> None:
    found = exchange().evaluate(first)
    assert isinstance(found, Refused)
    assert found.message is None
    assert reason in found.reason


def log_in_by_token(token_id: str, password: str, extensions: str = ",tokenauth=true", authzid: str = "") -> Found:
    """Of users, there is alice; of tokens, the one with the id `t`, of bob."""
    of_token = TokenKeys(credential("SCRAM-SHA-256", "of the token"), "bob", 1_000)
    known = users(passwords={"alice": "secret"})
    broker = ScramExchange("SCRAM-SHA-256", known.find, "broker", {"t": of_token}.get)
    client = TokenClient(token_id, password, header=f"n,{authzid},", extensions=extensions)
    challenge = broker.evaluate(client.first())
    return broker.evaluate(client.final(challenge.token)) if isinstance(challenge, Challenge) else challenge


def test_who_knows_the_secret_of_a_token_is_its_owner_until_it_expires() -> None:
    found = log_in_by_token("t", "of the token")
    assert isinstance(found, Identified)
    assert found._replace(token=b"") == Identified("bob", b"", 1_000, by_token=True)
    wrong = log_in_by_token("t", "wrong")
    assert wrong == Refused(None, "wrong user or password", "bob")


@pytest.mark.parametrize(
    ("token_id", "password", "extensions"),
    [("alice", "secret", ",tokenauth=true"), ("t", "of the token", ""), ("t", "of the token", ",tokenauth=false")],
)
def test_a_user_is_no_token_and_a_token_no_user(token_id: str, password: str, extensions: str) -> None:
    assert isinstance(log_in_by_token(token_id, password, extensions), Refused)


def test_a_client_with_a_token_asks_for_no_other_name_than_its_id() -> None:
    found = log_in_by_token("t", "of the token", authzid="a=bob")
    assert isinstance(found, Refused)
    assert found.message == OTHER_AUTHORIZATION_ID
    assert isinstance(log_in_by_token("t", "of the token", authzid="a=t"), Identified)


@pytest.mark.parametrize(
    "damage",
    [
        lambda final: b"",
        lambda final: b"\xff",
        lambda final: final.replace(b"c=biws", b"c=eSws"),  # says that the client could bind the channel
        lambda final: final.replace(b"c=biws", b"c=bi"),
        lambda final: final.replace(b"r=client", b"r=other"),
        lambda final: final.replace(b"broker", b"broken"),
        lambda final: final[: final.index(b",p=")],
        lambda final: final[: final.index(b",p=")] + b",p=AAAA",
        lambda final: final[: final.index(b",p=")] + b",p=" + base64.b64encode(bytes(32)),
        lambda final: final[: final.index(b",p=")] + b",p=" + base64.b64encode(bytes(64)),
        lambda final: final + b"\n",
    ],
)
def test_a_final_message_that_does_not_prove_the_password_is_refused(damage: Any) -> None:
    broker = exchange()
    challenge = broker.evaluate(b"n,,n=alice,r=client")
    assert isinstance(challenge, Challenge)
    found = broker.evaluate(damage(final_for(b"n=alice,r=client", challenge.token)))
    assert isinstance(found, Refused)
    assert found.message is None


def test_the_proof_of_another_exchange_is_of_no_use() -> None:
    earlier = exchange(nonce="first")
    challenge = earlier.evaluate(b"n,,n=alice,r=client")
    assert isinstance(challenge, Challenge)
    proof = final_for(b"n=alice,r=client", challenge.token)
    assert isinstance(earlier.evaluate(proof), Identified)
    later = exchange(nonce="second")
    later.evaluate(b"n,,n=alice,r=client")
    assert isinstance(later.evaluate(proof), Refused)


@given(first=st.binary(max_size=60), final=st.binary(max_size=60))
def test_no_bytes_raise(first: bytes, final: bytes) -> None:
    broker = exchange()
    if isinstance(broker.evaluate(b"n,," + first), Challenge):
        assert isinstance(broker.evaluate(final), Refused)
