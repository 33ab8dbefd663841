"""Keys of users of SCRAM, and made-up ones of others."""

from __future__ import annotations

from fencepost.broker.security.sasl.scram import Keys, made_up_keys
from fencepost.broker.security.sasl.scram_users import DEFAULT_MODEL, Credentials, ScramUsers

SECRET = b"secret"


def users(credentials: Credentials) -> ScramUsers:
    return ScramUsers("SCRAM-SHA-256", 1, lambda: credentials, SECRET)


ALICE: Keys = made_up_keys("SCRAM-SHA-256", "alice", b"other", DEFAULT_MODEL)


def test_a_user_has_its_own_keys() -> None:
    found = users({"alice": {1: ALICE}}).find("alice")
    assert found.exists
    assert found.keys == ALICE


def test_a_user_that_does_not_exist_has_the_same_keys_each_time() -> None:
    first, again = users({}).find("mallory"), users({}).find("mallory")
    assert not first.exists
    assert first.keys == again.keys
    assert first.keys != users({}).find("eve").keys


def test_a_user_of_another_mechanism_does_not_exist() -> None:
    assert not users({"alice": {2: ALICE}}).find("alice").exists
