"""What real clients and Apache Kafka 4.4 said to each other, read and written again by our classes: the same
bytes must come out.

The frames in tests/frames were recorded by `python -m tests.recording`; one file per API, one exchange per line.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fencepost.protocol.messages
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import decode, encode, schema_of

FRAMES = Path(__file__).resolve().parents[1] / "frames"


class Exchange(NamedTuple):
    """One recorded request and its reply, frames without length prefix; no reply where the broker sends none."""

    api_key: int
    version: int
    source: str
    request: bytes
    response: bytes | None


def recorded_exchanges() -> dict[str, list[Exchange]]:
    recorded: dict[str, list[Exchange]] = {}
    for path in sorted(FRAMES.glob("*.jsonl")):
        recorded[path.stem] = [
            Exchange(
                row["api_key"],
                row["version"],
                row["source"],
                bytes.fromhex(row["request"]),
                None if row["response"] is None else bytes.fromhex(row["response"]),
            )
            for row in map(json.loads, path.read_text().splitlines())
        ]
    return recorded


def message_classes(suffix: str) -> dict[int, type[Any]]:
    """The declared requests or responses by API key."""
    classes: dict[int, type[Any]] = {}
    for module_information in pkgutil.iter_modules(
        fencepost.protocol.messages.__path__, "fencepost.protocol.messages."
    ):
        module = importlib.import_module(module_information.name)
        for name, value in vars(module).items():
            if name.endswith(suffix) and isinstance(value, type) and hasattr(value, "api_key"):
                classes[value.api_key] = value
    return classes


RECORDED = recorded_exchanges()
REQUESTS = message_classes("Request")
RESPONSES = message_classes("Response")
for_every_api: Callable[[Any], Any] = pytest.mark.parametrize("exchanges", RECORDED.values(), ids=RECORDED.keys())


def is_flexible(message_class: type[Any], version: int) -> bool:
    return version in schema_of(message_class).flexible


def request_header_bytes(exchange: Exchange) -> int:
    """The length of a request's header: key, version, correlation id, client id and, in flexible versions, no tagged
    field."""
    client_id_bytes = int.from_bytes(exchange.request[8:10], "big", signed=True)
    position = 10 + max(client_id_bytes, 0)
    if is_flexible(REQUESTS[exchange.api_key], exchange.version):
        assert exchange.request[position] == 0
        position += 1
    return position


def response_header_bytes(exchange: Exchange) -> int:
    """The length of a reply's header: the correlation id and, in flexible versions, no tagged field; ApiVersions never
    has tags."""
    if exchange.api_key != ApiKey.API_VERSIONS and is_flexible(RESPONSES[exchange.api_key], exchange.version):
        assert exchange.response is not None
        assert exchange.response[4] == 0
        return 5
    return 4


def leaves_bytes_behind(exchange: Exchange, message: Any) -> bool:
    """Whether it is librdkafka's Metadata request for all topics, behind whose last field three bytes follow; Kafka
    ignores them."""
    is_metadata = exchange.api_key == ApiKey.METADATA and exchange.source.startswith("confluent-kafka")
    return is_metadata and message.topics is None


@for_every_api
def test_a_recorded_request_is_written_as_its_client_wrote_it(exchanges: list[Exchange]) -> None:
    for exchange in exchanges:
        body = exchange.request[request_header_bytes(exchange) :]
        message = decode(REQUESTS[exchange.api_key], body, exchange.version)
        written = bytes(encode(message, exchange.version))
        assert written == body[: len(written)], exchange
        assert len(written) == len(body) or leaves_bytes_behind(exchange, message), exchange


@for_every_api
def test_a_recorded_reply_is_written_as_apache_kafka_wrote_it(exchanges: list[Exchange]) -> None:
    for exchange in exchanges:
        if exchange.response is not None:
            body = exchange.response[response_header_bytes(exchange) :]
            message = decode(RESPONSES[exchange.api_key], body, exchange.version)
            assert bytes(encode(message, exchange.version)) == body, exchange


def test_every_declared_message_is_recorded() -> None:
    recorded_keys = {exchange.api_key for exchanges in RECORDED.values() for exchange in exchanges}
    assert set(REQUESTS) == recorded_keys
    assert set(RESPONSES) == recorded_keys


def test_every_version_that_apache_kafka_answered_is_declared() -> None:
    versions: dict[int, set[int]] = defaultdict(set)
    for exchanges in RECORDED.values():
        for exchange in exchanges:
            versions[exchange.api_key].add(exchange.version)
    undeclared = {
        REQUESTS[api_key].__name__: version
        for api_key, recorded in versions.items()
        for version in recorded
        if version not in schema_of(REQUESTS[api_key]).versions
    }
    assert undeclared == {}
