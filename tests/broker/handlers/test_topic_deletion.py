"""DeleteTopics: what is deleted, and what is refused in which words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.handler_context import HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path, num_partitions=4) as opened:
        await opened.create_topic("orders", 2)
        yield opened


def by_name(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=list(names), timeout_ms=1000
    )


async def deleted(broker: HandlerBroker, request: DeleteTopicsRequest, version: int = 6) -> DeletableTopicResult:
    # Fields of the other versions must be left out on the wire.
    if version >= 6:
        request.topic_names = []
    else:
        request.topics = []
    result: DeletableTopicResult
    (result,) = (await broker.call(request, version)).responses
    return result


@pytest.mark.parametrize("version", range(1, 7))
async def test_topic_is_deleted_by_name(broker: HandlerBroker, version: int) -> None:
    assert (await deleted(broker, by_name("orders"), version)).error_code == 0
    assert broker.topics.metadata.get("orders") is None


async def test_topic_is_deleted_by_id(broker: HandlerBroker) -> None:
    topic_id = broker.topic_id("orders")
    result = await deleted(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)]))
    assert (result.error_code, result.name, result.topic_id) == (0, "orders", topic_id)
    assert broker.topics.metadata.get("orders") is None


async def test_deleted_topic_is_answered_with_its_id(broker: HandlerBroker) -> None:
    topic_id = broker.topic_id("orders")
    assert (await deleted(broker, by_name("orders"))).topic_id == topic_id


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        pytest.param({"name": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown name"),
        pytest.param({"name": None, "topic_id": b"no such topic id"}, ErrorCode.UNKNOWN_TOPIC_ID, id="unknown id"),
        pytest.param({"name": None}, ErrorCode.INVALID_REQUEST, id="neither"),
        pytest.param({"name": "orders", "topic_id": b"no such topic id"}, ErrorCode.INVALID_REQUEST, id="both"),
    ],
)
async def test_topic_that_cannot_be_deleted_is_refused(
    broker: HandlerBroker, wanted: dict[str, Any], error: ErrorCode
) -> None:
    result = await deleted(broker, DeleteTopicsRequest(topics=[DeleteTopicState(**wanted)]))
    assert ErrorCode(result.error_code) is error
    assert broker.topics.metadata.get("orders") is not None


async def test_topic_deleted_twice_in_one_request_is_refused(broker: HandlerBroker) -> None:
    result = await deleted(broker, by_name("orders", "orders"))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert broker.topics.metadata.get("orders") is not None


async def test_internal_topic_is_not_deleted(broker: HandlerBroker) -> None:
    await broker.topics.ensure_internal("__transaction_state")
    result = await deleted(broker, by_name("__transaction_state"))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.topics.metadata.get("__transaction_state") is not None


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_switched_off(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async with open_broker(tmp_path, delete_topic_enable=False) as broker:
        await broker.create_topic("orders")
        assert (await deleted(broker, by_name("orders"), version)).error_code == error


async def test_topic_of_the_same_name_has_a_new_id_and_no_records(broker: HandlerBroker) -> None:
    before = broker.topic_id("orders")
    await deleted(broker, by_name("orders"))
    await broker.create_topic("orders")
    assert broker.topic_id("orders") != before
    assert broker.log("orders").log_end_offset == 0
