"""DescribeClientQuotas and AlterClientQuotas: quotas of entities, filters, and Kafka's words for errors."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.requests.api import APIS, RequestContext
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.handlers.test_recorded_answers import recorded
from tests.support.handler_calls import response_of
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = tuple[tuple[str, str | None], ...]
Op = tuple[str, float | None]
ALICE: Entity = (("user", "alice"),)
ANY_USER: Entity = (("user", None),)
ADDRESS: Entity = (("ip", "192.0.2.1"),)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


def entry(entity: Entity, *ops: Op) -> AlterEntryData:
    return AlterEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


async def alter_all(
    broker: HandlerBroker, *entries: AlterEntryData, validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    response = await broker.call(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    return [(ErrorCode(answer.error_code), answer.error_message) for answer in response.entries]


async def alter(broker: HandlerBroker, entity: Entity, *ops: Op) -> tuple[ErrorCode, str | None]:
    (outcome,) = await alter_all(broker, entry(entity, *ops))
    return outcome


async def describe(
    broker: HandlerBroker, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Entity, dict[str, float]]:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    response = await broker.call(DescribeClientQuotasRequest(components=wanted, strict=strict))
    assert response.error_code == 0, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in found.entity): {
            value.key: value.value for value in found.values
        }
        for found in response.entries
    }


async def test_replies_equal_those_recorded_from_kafka(broker: HandlerBroker) -> None:
    for exchange in recorded("alter_client_quotas"):
        assert await broker.call(exchange.request, exchange.version) == exchange.response
    for exchange in recorded("describe_client_quotas"):
        answer = await broker.call(exchange.request, exchange.version)
        assert (answer.error_code, answer.error_message or "") == (
            exchange.response.error_code,
            exchange.response.error_message or "",
        )
        by_entity = [sorted(found.entries or (), key=str) for found in (answer, exchange.response)]
        assert by_entity[0] == by_entity[1]


async def test_quotas_are_set_changed_and_removed(broker: HandlerBroker) -> None:
    done = (ErrorCode.NONE, None)
    assert await alter(broker, ALICE, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5)) == done
    assert await describe(broker) == {ALICE: {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    assert await alter(broker, ALICE, ("producer_byte_rate", 2000.0), ("request_percentage", None)) == done
    assert await describe(broker) == {ALICE: {"producer_byte_rate": 2000.0}}
    assert await alter(broker, ALICE, ("producer_byte_rate", None), ("nothing", None)) == done
    assert await describe(broker) == {}


async def test_validate_only_changes_nothing(broker: HandlerBroker) -> None:
    checked = await alter_all(broker, entry(ALICE, ("producer_byte_rate", 1.0)), validate_only=True)
    assert checked == [(ErrorCode.NONE, None)]
    assert await describe(broker) == {}


@pytest.mark.parametrize(
    ("entity", "op", "message"),
    [
        (ALICE, ("producer_byte_rate", 1000.5), "producer_byte_rate cannot be a fractional value."),
        (ALICE, ("producer_byte_rate", 1e300), "Proposed value for producer_byte_rate is too large for a LONG."),
        (ALICE, ("consumer_byte_rate", 0.0), "Quota consumer_byte_rate must be greater than 0"),
        (ALICE, ("consumer_byte_rate", math.nan), "Quota consumer_byte_rate must be greater than 0"),
        (ALICE, ("nothing", 1.0), "Invalid configuration key nothing"),
        (ALICE, ("connection_creation_rate", 1.0), "Invalid configuration key connection_creation_rate"),
        (ADDRESS, ("producer_byte_rate", 1.0), "Invalid configuration key producer_byte_rate"),
        (ADDRESS, ("connection_creation_rate", 1e10), "connection_creation_rate is too large for an INT."),
        ((("ip", None),), ("connection_creation_rate", 1.5), "connection_creation_rate cannot be a fractional value."),
        ((("ip", "no such\0host"),), ("connection_creation_rate", 1.0), "is not a valid IP or resolvable host."),
        ((), ("request_percentage", 1.0), "Invalid empty client quota entity"),
        ((("user", ""),), ("request_percentage", 1.0), "Empty user not supported"),
        ((("planet", "mars"),), ("request_percentage", 1.0), "Unhandled client quota entity type: planet"),
        ((*ADDRESS, *ALICE), ("connection_creation_rate", 1.0), "Invalid quota entity combination"),
    ],
)
async def test_invalid_quotas_are_refused_in_kafkas_words(
    broker: HandlerBroker, entity: Entity, op: Op, message: str
) -> None:
    error, reported = await alter(broker, entity, op)
    assert error is ErrorCode.INVALID_REQUEST
    assert message in (reported or "")
    assert await describe(broker) == {}


async def test_an_address_may_be_limited(broker: HandlerBroker) -> None:
    assert await alter(broker, ADDRESS, ("connection_creation_rate", 5.0)) == (ErrorCode.NONE, None)
    assert await describe(broker, ("ip", SPECIFIED, None)) == {ADDRESS: {"connection_creation_rate": 5.0}}


async def test_an_entity_comes_once_and_a_quota_once(broker: HandlerBroker) -> None:
    twice = entry(ALICE, ("producer_byte_rate", 5.0))
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert await alter_all(broker, twice, twice) == [(ErrorCode.INVALID_REQUEST, message)]
    assert await describe(broker) == {ALICE: {"producer_byte_rate": 5.0}}
    outcome = await alter(broker, ALICE, ("producer_byte_rate", 6.0), ("producer_byte_rate", 7.0))
    assert outcome == (ErrorCode.INVALID_REQUEST, message)
    assert await describe(broker) == {ALICE: {"producer_byte_rate": 5.0}}


async def test_filters_find_what_has_all_their_parts(broker: HandlerBroker) -> None:
    both: Entity = (("client-id", "app"), ("user", "alice"))
    for entity in (ALICE, both, ANY_USER):
        await alter(broker, entity, ("request_percentage", 1.0))
    assert set(await describe(broker, ("user", EXACT, "alice"))) == {ALICE, both}
    assert set(await describe(broker, ("user", EXACT, "alice"), strict=True)) == {ALICE}
    assert set(await describe(broker, ("user", DEFAULT, None))) == {ANY_USER}
    assert set(await describe(broker, ("user", SPECIFIED, None))) == {ALICE, both, ANY_USER}
    assert set(await describe(broker, ("user", EXACT, "alice"), ("client-id", SPECIFIED, None))) == {both}
    assert await describe(broker, strict=True) == {}


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", SPECIFIED, "x")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED, but also specified a match"),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        ([("user", EXACT, "a")] * 2, ErrorCode.INVALID_REQUEST, "user cannot appear more than once in the filter."),
        ([("", SPECIFIED, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("planet", DEFAULT, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type planet"),
        (
            [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination.",
        ),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    broker: HandlerBroker, components: list[tuple[str, int, str | None]], error: ErrorCode, message: str
) -> None:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    response = await broker.call(DescribeClientQuotasRequest(components=wanted))
    assert (response.error_code, response.entries) == (error, None)
    assert message in response.error_message


async def test_a_store_that_fails_is_reported(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **_options: object) -> bool:
        raise StorageError("the disk is full")

    monkeypatch.setattr(InMemoryMetadataStore, "compare_and_set", fail)
    outcome = await alter(broker, ALICE, ("producer_byte_rate", 5.0))
    assert outcome == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


def meter(context: RequestContext) -> list[float]:
    """Meter a request of the client; return for how long its connection is muted."""
    muted: list[float] = []
    context.meter = context.services.client_quotas.meter(ANONYMOUS, "app", produced_bytes=0, mute=muted.append)
    return muted


# What a fetch does with its quota


async def metered_fetch(broker: HandlerBroker, offset: int, *, max_wait_ms: int = 0) -> FetchResponse:
    context = broker.context(12)
    muted = meter(context)
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        session_epoch=-1,
        topics=[FetchTopic(topic="orders", partitions=[partition])],
    )
    response = response_of(APIS[ApiKey.FETCH].handler(context, request))
    assert isinstance(response, FetchResponse)
    assert context.meter is not None
    response.throttle_time_ms = context.meter.finish()
    assert muted == ([response.throttle_time_ms / 1000] if response.throttle_time_ms else [])
    return response


async def test_a_fetch_over_its_quota_comes_back_empty_and_gets_the_same_later(broker: HandlerBroker) -> None:
    await broker.create_topic("orders")
    log = broker.log("orders")
    sent = batch(bytes(600))
    for _ in range(3):
        log.append(memoryview(sent), now_ms=NOW_MS)
    await log.flushed()
    await alter(broker, (("client-id", "app"),), ("consumer_byte_rate", 100.0))
    first = await metered_fetch(broker, 0)
    assert first.throttle_time_ms == 0
    assert [len(partition.records or b"") for partition in first.responses[0].partitions] == [len(sent)]
    second = await metered_fetch(broker, 1)
    assert second.responses == []
    assert second.throttle_time_ms > 0
    broker.clock.time_ms += 11_000
    third = await metered_fetch(broker, 1)
    assert [len(partition.records or b"") for partition in third.responses[0].partitions] == [len(sent)]


# What creating and deleting does


async def metered(broker: HandlerBroker, request: Any, version: int) -> tuple[Any, list[float]]:
    """The response, and for how long the connection is muted."""
    api = APIS[request.api_key]
    context = broker.context(version)
    muted = meter(context)
    response = response_of(await finished(api.handler(context, request)))
    assert context.meter is not None
    response.throttle_time_ms = context.meter.finish()
    return response, muted


def creation(name: str, partition_count: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)])


async def test_creating_more_partitions_than_the_quota_is_refused_until_time_has_passed(broker: HandlerBroker) -> None:
    await alter(broker, (("client-id", "app"),), ("controller_mutation_rate", 1.0))
    response, muted = await metered(broker, creation("first", 13), 7)  # of 11 that may come at once
    assert (response.topics[0].error_code, muted) == (0, [])
    response, muted = await metered(broker, creation("second", 1), 7)
    assert response.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (response.throttle_time_ms, muted) == (2000, [2.0])
    assert broker.topics.metadata.get("second") is None
    growth = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="first", count=14, assignments=None)])
    response, _ = await metered(broker, growth, 3)
    assert response.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="first")])
    response, _ = await metered(broker, deletion, 6)
    assert response.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.clock.time_ms += 2000
    response, muted = await metered(broker, deletion, 6)
    assert (response.responses[0].error_code, muted) == (0, [])


async def test_older_versions_are_not_refused_but_pause(broker: HandlerBroker) -> None:
    await alter(broker, (("client-id", "app"),), ("controller_mutation_rate", 1.0))
    response, muted = await metered(broker, creation("first", 13), 5)
    assert (response.topics[0].error_code, response.throttle_time_ms, muted) == (0, 2000, [2.0])
    response, muted = await metered(broker, creation("second", 1), 5)
    assert (response.topics[0].error_code, response.throttle_time_ms, muted) == (0, 3000, [3.0])


async def test_a_refused_creation_is_not_charged(broker: HandlerBroker) -> None:
    await alter(broker, (("client-id", "app"),), ("controller_mutation_rate", 1.0))
    await metered(broker, creation("not a name", 100), 7)
    response, _ = await metered(broker, creation("first", 1), 7)
    assert response.topics[0].error_code == 0


async def test_topics_created_by_the_way_count_against_the_quota(broker: HandlerBroker) -> None:
    await alter(broker, (("client-id", "app"),), ("controller_mutation_rate", 0.1))
    topics = [MetadataRequestTopic(name=f"flood-{number}") for number in range(20)]
    response, muted = await metered(broker, MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
    errors = [topic.error_code for topic in response.topics]
    assert 1 <= errors.count(ErrorCode.NONE) < 20
    assert set(errors) == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert muted
