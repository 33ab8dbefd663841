"""Random UUIDs, against the standard library's."""

from __future__ import annotations

import uuid

import pytest

from fencepost.broker.kernel.random_ids import random_uuid, uuid_text


@pytest.mark.parametrize("random_bytes", [bytes(16), b"\xff" * 16, bytes(range(16)), bytes(range(200, 216))])
def test_a_random_uuid_is_of_version_4(random_bytes: bytes) -> None:
    expected = uuid.UUID(bytes=random_bytes, version=4)
    assert random_uuid(random_bytes) == expected.bytes
    assert uuid_text(random_uuid(random_bytes)) == str(expected)
