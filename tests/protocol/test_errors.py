"""The lists of error codes and API keys are complete: the same as kio's, generated from Apache Kafka 4.3, and what
is newer."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from tests.protocol.newer_messages import HIGHEST_ERROR_OF_OTHERS


def test_every_error_code_of_kafka_has_its_name() -> None:
    of_kio = {code.name.upper(): int(code.value) for code in KioErrorCode}
    newer = {
        "GROUP_DELETION_FAILED": 134,
        "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED": 135,
        "CONTROLLER_ID_NOT_REGISTERED": 136,
    }
    assert max(of_kio.values()) == HIGHEST_ERROR_OF_OTHERS
    assert {code.name: int(code) for code in ErrorCode} == of_kio | newer


def test_every_api_key_of_kafka_has_its_name() -> None:
    newer = {"STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE": 93, "UNREGISTER_CONTROLLER": 94}
    assert {key.name: int(key) for key in ApiKey} == {name.upper(): key for key, name in api_key_map.items()} | newer
