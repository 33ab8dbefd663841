"""DescribeUserScramCredentials and AlterUserScramCredentials: what is kept, what is shown, and what is refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.hosting.scram_credentials import ScramCredentials, ScramMechanism, credential_of
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.broker.handlers.test_recorded_answers import recorded
from tests.support.handler_context import HandlerBroker, open_broker

SHA_256, SHA_512 = ScramMechanism
Outcomes = dict[str, tuple[ErrorCode, str | None]]
TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
DONE = (ErrorCode.NONE, None)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = b"p" * 32) -> object:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=password
    )


def deletion(name: str, mechanism: int = SHA_256) -> object:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(broker: HandlerBroker, *changes: object) -> Outcomes:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    response = await broker.call(request)
    return {result.user: (ErrorCode(result.error_code), result.error_message) for result in response.results}


async def describe(broker: HandlerBroker, *users: str) -> dict[str, dict[int, int] | ErrorCode]:
    """The iterations of each mechanism of each user."""
    wanted = [UserName(name=user) for user in users] if users else None
    response = await broker.call(DescribeUserScramCredentialsRequest(users=wanted))
    assert response.error_code == 0
    return {
        result.user: ErrorCode(result.error_code)
        if result.error_code
        else {found.mechanism: found.iterations for found in result.credential_infos}
        for result in response.results
    }


async def test_credentials_are_set_changed_and_removed(broker: HandlerBroker) -> None:
    assert await alter(broker, upsertion("alice"), upsertion("bob", SHA_512)) == {"alice": DONE, "bob": DONE}
    assert await describe(broker) == {"alice": {SHA_256: 4096}, "bob": {SHA_512: 4096}}
    await alter(broker, upsertion("alice", SHA_512, 8192))
    assert await describe(broker, "alice") == {"alice": {SHA_256: 4096, SHA_512: 8192}}
    await alter(broker, deletion("alice"))
    await alter(broker, deletion("bob", SHA_512))
    assert await describe(broker) == {"alice": {SHA_512: 8192}}


async def test_replies_equal_those_recorded_from_kafka(broker: HandlerBroker) -> None:
    for name in ("alter_user_scram_credentials", "describe_user_scram_credentials"):
        for exchange in recorded(name):
            answer = await broker.call(exchange.request, exchange.version)
            by_user = [sorted(found.results, key=lambda result: result.user) for found in (answer, exchange.response)]
            for ours, kafkas in zip(*by_user, strict=True):
                ours.error_message, kafkas.error_message = ours.error_message or "", kafkas.error_message or ""
                assert ours == kafkas


async def test_neither_a_password_nor_what_logs_in_is_kept() -> None:
    store = InMemoryMetadataStore()
    kept = ScramCredentials(store)
    salted_password = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    credential = credential_of(SHA_256, 4096, b"salt", salted_password)
    await kept.change({("alice", SHA_256): credential})
    stored, _ = await store.read_versioned("scram-credentials")
    assert stored is not None
    assert base64.b64encode(salted_password) not in stored
    again = ScramCredentials(store)
    await again.open()
    assert again.all == {"alice": {SHA_256: credential}}


def test_the_keys_are_those_of_the_standard() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of(SHA_256, 4096, salt, hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096))
    assert base64.b64encode(credential.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(credential.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (upsertion("alice", iterations=4095), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (upsertion("alice", iterations=16_385), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
        (upsertion("", 1), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (upsertion("alice", 3), (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (deletion("alice", 0), (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (deletion(""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (
            deletion("alice"),
            (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        ),
        (
            upsertion("alice", password=b""),
            (ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"),
        ),
    ],
)
async def test_a_refused_alteration_does_not_affect_the_others(
    broker: HandlerBroker, change: object, outcome: tuple[ErrorCode, str]
) -> None:
    outcomes = await alter(broker, change, upsertion("bob"))
    assert outcomes.pop("bob") == DONE
    assert list(outcomes.values()) == [outcome]
    assert await describe(broker) == {"bob": {SHA_256: 4096}}


async def test_a_user_comes_once_in_a_request(broker: HandlerBroker) -> None:
    await alter(broker, upsertion("alice"))
    assert await alter(broker, deletion("alice"), upsertion("alice")) == {"alice": TWICE}
    assert await alter(broker, upsertion("bob", SHA_256), upsertion("bob", SHA_512)) == {"bob": TWICE}
    assert await describe(broker) == {"alice": {SHA_256: 4096}}
    assert await describe(broker, "alice", "alice") == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert await describe(broker, "nobody") == {"nobody": ErrorCode.RESOURCE_NOT_FOUND}


async def test_of_what_is_wrong_with_a_user_the_first_counts(broker: HandlerBroker) -> None:
    changes = deletion("alice"), upsertion("alice"), upsertion("bob", 9), upsertion("bob"), upsertion("bob")
    outcomes = await alter(broker, *changes)
    assert {user: error for user, (error, _) in outcomes.items()} == {
        "alice": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert await describe(broker) == {}


async def test_a_store_that_fails_is_reported(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **_options: object) -> bool:
        raise StorageError("the disk is full")

    monkeypatch.setattr(InMemoryMetadataStore, "compare_and_set", fail)
    outcomes = await alter(broker, upsertion("alice"), upsertion("bob", 9))
    assert outcomes["alice"] == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    assert outcomes["bob"][0] is ErrorCode.UNSUPPORTED_SASL_MECHANISM
