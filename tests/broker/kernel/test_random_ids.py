"""Random UUIDs, against the standard library's."""

from __future__ import annotations

import base64
import uuid

import pytest

from fencepost.broker.kernel.random_ids import base64_uuid, random_uuid, uuid_text


@pytest.mark.parametrize("random_bytes", [bytes(16), b"\xff" * 16, bytes(range(16)), bytes(range(200, 216))])
def test_a_random_uuid_is_of_version_4(random_bytes: bytes) -> None:
    expected = uuid.UUID(bytes=random_bytes, version=4)
    assert random_uuid(random_bytes) == expected.bytes
    assert uuid_text(random_uuid(random_bytes)) == str(expected)


@pytest.mark.parametrize("first", [0xF8, 0xF9, 0xFA, 0xFB])
def test_no_uuid_begins_with_a_dash_which_command_lines_read_as_an_option(first: int) -> None:
    random_bytes = bytes([first]) * 16
    assert base64.urlsafe_b64encode(random_bytes).startswith(b"-")
    assert not base64.urlsafe_b64encode(random_uuid(random_bytes)).startswith(b"-")
    assert random_uuid(random_bytes)[1:] == uuid.UUID(bytes=random_bytes, version=4).bytes[1:]


def test_a_uuid_in_base64_reads_back_and_never_begins_with_a_dash() -> None:
    made = {base64_uuid() for _ in range(1000)}
    assert len(made) == 1000
    assert not [text for text in made if text.startswith("-")]
    assert {uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")).version for text in made} == {4}
