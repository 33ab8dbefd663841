"""The lists of error codes and API keys are complete: the same as kio's, generated from Apache Kafka."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode


def test_every_error_code_of_kafka_has_its_name() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {code.name.upper(): int(code.value) for code in KioErrorCode}


def test_every_api_key_of_kafka_has_its_name() -> None:
    assert {key.name: int(key) for key in ApiKey} == {name.upper(): key for key, name in api_key_map.items()}
