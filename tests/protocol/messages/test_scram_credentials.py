"""DescribeUserScramCredentials and AlterUserScramCredentials as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.protocol.messages.golden import assert_bytes


def test_all_users_are_asked_for_by_null() -> None:
    request = DescribeUserScramCredentialsRequest(users=None)
    assert_bytes(request, 0, "00 00")


def test_a_credential_is_sent_salted() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="a", mechanism=2)],
        upsertions=[ScramCredentialUpsertion(name="b", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")],
    )
    assert_bytes(request, 0, "02 02 61 02 00 02 02 62 01 00 00 10 00 02 73 02 70 00 00")
