"""Headers of all versions, compared with those of kafka-python, and their refusal of anything broken."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.declaration import MessageSchema
from fencepost.protocol.headers import (
    RequestHeader,
    encode_request_header,
    read_request_header,
    read_request_start,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.schema import DecodeError, schema_of
from tests.protocol.kafka_python import knows, message_class
from tests.protocol.message_strategies import snake_case
from tests.protocol.newer_messages import highest_of_others


@pytest.mark.parametrize("client_id", [None, "", "client", "é" * 100])
@pytest.mark.parametrize("header_version", [1, 2])
def test_a_request_header_is_read_as_it_was_written(client_id: str | None, header_version: int) -> None:
    encoded = encode_request_header(26, 5, -7, client_id, header_version)
    read = read_request_header(bytes(encoded) + b"body", header_version)
    assert read == RequestHeader(26, 5, -7, client_id, len(encoded))


def test_version_0_has_no_client_id() -> None:
    assert read_request_header(b"\x00\x07\x00\x00\x00\x00\x00\x2a", 0) == RequestHeader(7, 0, 42, None, 8)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    encoded = encode_request_header(18, 3, 1, "c", 2)[:-1] + b"\x02\x00\x02ab\x05\x00"
    assert read_request_header(encoded, 2).body_position == len(encoded)


def known_versions(schema: MessageSchema) -> list[int]:
    """The versions that other implementations know."""
    api = schema.name.removesuffix("Request").removesuffix("Response")
    return [version for version in schema.versions if version <= highest_of_others(api)]


@pytest.mark.parametrize("api_key", [key for key in sorted(REQUESTS) if knows(REQUESTS[key].__name__)])
def test_header_versions_are_those_of_kafka_python(api_key: int) -> None:
    schema = schema_of(REQUESTS[api_key])
    for version in known_versions(schema):
        request = message_class(schema.name)(version=version)
        request.with_header(correlation_id=5, client_id="me")
        theirs = request.encode(header=True)
        header_version = request_header_version(api_key, version)
        header = read_request_header(theirs, header_version)
        assert header[:4] == (api_key, version, 5, "me")
        assert theirs[: header.body_position] == encode_request_header(api_key, version, 5, "me", header_version)


@pytest.mark.parametrize("messages", [REQUESTS, RESPONSES], ids=["requests", "responses"])
def test_header_versions_are_those_of_kio(messages: dict[int, type[Any]]) -> None:
    header_version = {"request": request_header_version, "response": response_header_version}
    for api_key, message_type in messages.items():
        schema = schema_of(message_type)
        kind = schema.name[-len("request") :].lower() if messages is REQUESTS else "response"
        api = snake_case(schema.name[: -len(kind)])
        for version in known_versions(schema):
            module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
            theirs = getattr(module, schema.name).__header_schema__.__version__
            assert header_version[kind](api_key, version) == theirs, (schema.name, version)


def test_response_headers_have_tags_in_flexible_versions_except_for_api_versions() -> None:
    assert response_header_version(ApiKey.END_TXN, 2) == 0
    assert response_header_version(ApiKey.END_TXN, 3) == 1
    assert {response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)} == {0}
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert response_header_version(ApiKey.OFFSET_DELETE, 0) == 0


def test_an_undeclared_api_has_the_oldest_headers() -> None:
    assert request_header_version(4, 0) == 1
    assert response_header_version(4, 0) == 0


def test_the_tables_of_messages_pair_requests_with_replies() -> None:
    assert list(REQUESTS) == list(RESPONSES) == sorted(REQUESTS)
    for api_key, request in REQUESTS.items():
        assert schema_of(request).api_key == schema_of(RESPONSES[api_key]).api_key == api_key
        assert schema_of(request).versions == schema_of(RESPONSES[api_key]).versions
        assert schema_of(request).flexible == schema_of(RESPONSES[api_key]).flexible
        name = request.__name__.removesuffix("Request")
        assert RESPONSES[api_key].__name__ == name + "Response"
        assert ApiKey(api_key).name.replace("_", "") == name.upper()


@pytest.mark.parametrize("size", range(8))
def test_fewer_than_eight_bytes_are_no_request(size: int) -> None:
    with pytest.raises(DecodeError):
        read_request_start(bytes(size))


@given(st.binary(max_size=40), st.sampled_from([0, 1, 2]))
def test_random_bytes_are_read_or_refused(buffer: bytes, header_version: int) -> None:
    try:
        header = read_request_header(buffer, header_version)
    except DecodeError:
        return
    assert header.body_position <= len(buffer)


@pytest.mark.parametrize(
    ("encoded", "header_version"),
    [
        ("001a0005000000010002", 1),  # client id of two bytes, none there
        ("001a000500000001fffe", 1),  # length -2
        ("001a0005000000010002c328", 1),  # not UTF-8
        ("001a000500000001ffff", 2),  # no tagged fields at all
        ("001a000500000001ffff010009", 2),  # a tagged field beyond the end
    ],
)
def test_a_broken_header_is_refused(encoded: str, header_version: int) -> None:
    with pytest.raises(DecodeError, match="request header"):
        read_request_header(bytes.fromhex(encoded), header_version)
