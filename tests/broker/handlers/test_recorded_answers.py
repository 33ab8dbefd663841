"""What does not depend on what a broker holds is answered word for word as Apache Kafka answered when its frames were
recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.protocol.headers import read_request_header, request_header_version, response_header_version
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.schema import decode
from tests.support.handler_context import HandlerBroker, open_broker

FRAMES = Path(__file__).resolve().parents[2] / "frames"
SAME = (
    "create_acls",
    "create_delegation_token",
    "delete_acls",
    "describe_acls",
    "describe_delegation_token",
    "expire_delegation_token",
    "list_partition_reassignments",
    "renew_delegation_token",
    "sasl_authenticate",
    "sasl_handshake",
    "unregister_broker",
    "unregister_controller",
)


class Recorded(NamedTuple):
    """One exchange with Apache Kafka."""

    version: int
    request: Any
    response: Any


def recorded(name: str) -> Iterator[Recorded]:
    for line in (FRAMES / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        api_key, version = row["api_key"], row["version"]
        request, response = bytes.fromhex(row["request"]), bytes.fromhex(row["response"])
        header = read_request_header(request, request_header_version(api_key, version))
        body_position = 4 + response_header_version(api_key, version)
        yield Recorded(
            version,
            decode(REQUESTS[api_key], request, version, header.body_position),
            decode(RESPONSES[api_key], response, version, body_position),
        )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("name", SAME)
async def test_the_answer_is_kafkas(broker: HandlerBroker, name: str) -> None:
    exchanges = list(recorded(name))
    assert exchanges
    for exchange in exchanges:
        assert await broker.call(exchange.request, exchange.version) == exchange.response


@pytest.mark.parametrize("name", ["add_raft_voter", "remove_raft_voter"])
async def test_a_fixed_quorum_is_refused_in_kafkas_words(broker: HandlerBroker, name: str) -> None:
    for exchange in recorded(name):
        answer = await broker.call(exchange.request, exchange.version)
        if exchange.request.cluster_id is None:
            assert answer == exchange.response
        else:
            assert answer.error_code == exchange.response.error_code
            assert 'The given id "elsewhere" doesn\'t match the cluster id' in answer.error_message
