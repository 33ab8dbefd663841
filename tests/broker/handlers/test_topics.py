"""CreateTopics and CreatePartitions: what is done, and what is refused in which words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.hosting.topic_rules import internal_topic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path, num_partitions=4) as opened:
        await opened.create_topic("orders", 2)
        yield opened


# CreateTopics


def topic(
    name: str,
    partition_count: int = 1,
    replication_factor: int = 1,
    *,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=config.replace("_", "."), value=value) for config, value in configs.items()],
    )


async def created(
    broker: HandlerBroker, wanted: CreatableTopic, version: int = 7, *, validate_only: bool = False
) -> CreatableTopicResult:
    result: CreatableTopicResult
    (result,) = (await broker.call(CreateTopicsRequest(topics=[wanted], validate_only=validate_only), version)).topics
    return result


async def test_created_topic_can_be_used_when_the_answer_leaves(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", 3, retention_ms="1000"))
    assert (result.error_code, result.error_message, result.topic_id) == (0, None, broker.topic_id("new"))
    assert (result.num_partitions, result.replication_factor, result.topic_config_error_code) == (3, 1, 0)
    assert broker.log("new", 2).config.retention_ms == 1000


async def test_answer_holds_the_effective_configs(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", cleanup_policy="compact"))
    configs = {config.name: config for config in result.configs or []}
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("compact", 1)
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].config_source) == ("1048588", 5)


async def test_the_answer_shows_what_was_given_letter_by_letter(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", cleanup_policy="compact, delete"))
    assert {config.name: config.value for config in result.configs or []}["cleanup.policy"] == "compact, delete"


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_create_version_is_served(broker: HandlerBroker, version: int) -> None:
    assert (await created(broker, topic("new"), version)).error_code == 0


async def test_defaults_stand_for_missing_numbers(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("orders", "Topic 'orders' already exists."),
        ("or.ders", "Topic 'or.ders' collides with existing topic: or_ders"),
        ("", "Topic name is invalid: the empty string is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (250 * "a", "is longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
async def test_a_name_is_refused_in_kafkas_words_which_tools_look_for(
    broker: HandlerBroker, name: str, words: str
) -> None:
    await broker.create_topic("or_ders", 1)
    assert words in str((await created(broker, topic(name))).error_message)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
async def test_a_client_may_create_an_internal_topic_as_its_coordinator_would(tmp_path: Path, name: str) -> None:
    async with open_broker(tmp_path) as broker:
        result = await created(broker, topic(name, 3, segment_bytes="2000000"))
        assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
        made = broker.topics.metadata.get(name)
        assert made is not None
        assert made.is_internal
        needed = {**internal_topic(name, broker.services.settings).configs, "segment.bytes": "2000000"}
        assert dict(made.configs) == needed
        again = await created(broker, topic(name, 3))
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        ("__consumer_offsets", {"cleanup.policy": "delete"}),
        ("__transaction_state", {"cleanup.policy": "compact,delete"}),
        ("__share_group_state", {"cleanup.policy": "compact"}),
        ("__share_group_state", {"retention.ms": "1000"}),
    ],
)
async def test_an_internal_topic_whose_records_would_be_lost_is_refused(
    tmp_path: Path, name: str, configs: dict[str, str | None]
) -> None:
    wanted = topic(name)
    wanted.configs = [CreatableTopicConfig(name=config, value=value) for config, value in configs.items()]
    async with open_broker(tmp_path) as broker:
        for validate_only in (True, False):
            result = await created(broker, wanted, validate_only=validate_only)
            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert name in str(result.error_message)
        assert broker.topics.metadata.get(name) is None


async def test_validation_alone_creates_nothing(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", -1), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 4, bytes(16))
    assert broker.topics.metadata.get("new") is None
    refused = await created(broker, topic("orders"), validate_only=True)
    assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        pytest.param(topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS, id="existing"),
        pytest.param(topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, id="impossible name"),
        pytest.param(topic("new", 0), ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param(topic("new", -2), ErrorCode.INVALID_PARTITIONS, id="negative partitions"),
        pytest.param(topic("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR, id="more copies than brokers"),
        pytest.param(topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, id="no copies"),
        pytest.param(topic("orders", 1, 3), ErrorCode.TOPIC_ALREADY_EXISTS, id="existing counts more than copies"),
        pytest.param(topic("new", 1, 3, no_such="1"), ErrorCode.INVALID_CONFIG, id="configs count more than copies"),
        pytest.param(topic("new", 0, no_such="1"), ErrorCode.INVALID_CONFIG, id="configs count more than partitions"),
        pytest.param(topic("new", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR, id="no copies, no partitions"),
        pytest.param(topic("new", 0, 3), ErrorCode.INVALID_PARTITIONS, id="more copies than brokers, no partitions"),
        pytest.param(topic("new", retention_ms="soon"), ErrorCode.INVALID_CONFIG, id="unreadable config"),
        pytest.param(topic("new", no_such="1"), ErrorCode.INVALID_CONFIG, id="unknown config"),
        pytest.param(
            topic("new", 1, -1, assignments={0: [NODE_ID]}), ErrorCode.INVALID_REQUEST, id="a number and assignments"
        ),
        pytest.param(
            topic("new", -1, 1, assignments={0: [NODE_ID]}), ErrorCode.INVALID_REQUEST, id="a factor and assignments"
        ),
        pytest.param(
            topic("new", -1, -1, assignments={0: [NODE_ID], 2: [NODE_ID]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="assignments with a gap",
        ),
        pytest.param(
            topic("new", -1, -1, assignments={0: [99]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"
        ),
        pytest.param(
            topic("new", -1, -1, assignments={0: [NODE_ID, NODE_ID]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="the same broker twice",
        ),
    ],
)
async def test_topic_that_cannot_be_is_refused_with_a_reason(
    broker: HandlerBroker, wanted: CreatableTopic, error: ErrorCode
) -> None:
    result = await created(broker, wanted)
    assert ErrorCode(result.error_code) is error
    assert result.error_message
    assert (result.num_partitions, result.replication_factor, result.topic_id) == (-1, -1, bytes(16))
    assert len(broker.topics.metadata) == 1


async def test_any_replication_factor_is_taken_where_the_setting_says_so(tmp_path: Path) -> None:
    async with open_broker(tmp_path, fencepost_replication_factor_any=True) as broker:
        result = await created(broker, topic("new", 2, 3))
        # It has one replica, and says so.
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
        assert (await created(broker, topic("other", 1, 0))).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_assignment_gives_the_number_of_partitions(broker: HandlerBroker) -> None:
    result = await created(broker, topic("new", -1, -1, assignments={1: [NODE_ID], 0: [NODE_ID]}))
    assert (result.error_code, result.num_partitions) == (0, 2)


async def test_topic_created_twice_in_one_request_is_refused_once(broker: HandlerBroker) -> None:
    response = await broker.call(CreateTopicsRequest(topics=[topic("new"), topic("other"), topic("new")]))
    assert {result.name: result.error_code for result in response.topics} == {
        "new": ErrorCode.INVALID_REQUEST,
        "other": 0,
    }
    assert len(response.topics) == 2


@pytest.mark.parametrize(
    ("wanted", "is_refused"),
    [
        pytest.param([topic("large", 10_000)], True, id="in one topic"),
        pytest.param([topic("large", 9_999)], False, id="in one topic, just as many as may be"),
        pytest.param([topic("large", 9_999, cleanup_policy="compact")], True, id="and a setting"),
        pytest.param([topic("a", 6_000), topic("b", 3_999)], True, id="in several"),
        pytest.param([topic("a", 6_000), topic("b", 3_998)], False, id="in several, just as many as may be"),
        pytest.param([topic("a", 9_995), topic("b", -1)], True, id="with the default number"),
        pytest.param([topic("a", 9_998), topic("orders", 1)], True, id="with a topic that is there already"),
        pytest.param([topic("a", 6_000), topic("b", 5_000), topic("b", 5_000)], False, id="without one named twice"),
    ],
)
async def test_a_request_for_very_many_partitions_is_refused_as_a_whole(
    broker: HandlerBroker, wanted: list[CreatableTopic], is_refused: bool
) -> None:
    response = await broker.call(CreateTopicsRequest(topics=wanted, validate_only=True))
    refused = [result.name for result in response.topics if result.error_code == ErrorCode.POLICY_VIOLATION]
    assert refused == ([one.name for one in wanted] if is_refused else [])


# CreatePartitions


def grow(
    name: str, count: int, *, assignments: list[list[int]] | None = None, validate_only: bool = False
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
            )
        ],
        timeout_ms=1000,
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(broker: HandlerBroker, version: int) -> None:
    (result,) = (await broker.call(grow("orders", 5), version)).results
    assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
    assert broker.log("orders", 4).log_end_offset == 0


async def test_validation_alone_adds_nothing(broker: HandlerBroker) -> None:
    (result,) = (await broker.call(grow("orders", 5, validate_only=True))).results
    assert result.error_code == 0
    metadata = broker.topics.metadata.get("orders")
    assert metadata is not None
    assert metadata.partition_count == 2


async def test_added_partitions_can_be_assigned_to_this_broker(broker: HandlerBroker) -> None:
    (result,) = (await broker.call(grow("orders", 4, assignments=[[NODE_ID], [NODE_ID]]))).results
    assert result.error_code == 0


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        pytest.param(grow("nowhere", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic"),
        pytest.param(grow("orders", 2), ErrorCode.INVALID_PARTITIONS, id="as many as there are"),
        pytest.param(grow("orders", 1), ErrorCode.INVALID_PARTITIONS, id="fewer than there are"),
        pytest.param(
            grow("orders", 4, assignments=[[NODE_ID]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="too few assigned"
        ),
        pytest.param(grow("orders", 3, assignments=[[99]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"),
    ],
)
async def test_growth_that_cannot_be_is_refused_with_a_reason(
    broker: HandlerBroker, request_: CreatePartitionsRequest, error: ErrorCode
) -> None:
    (result,) = (await broker.call(request_)).results
    assert ErrorCode(result.error_code) is error
    assert result.error_message
    metadata = broker.topics.metadata.get("orders")
    assert metadata is not None
    assert metadata.partition_count == 2


async def test_topic_grown_twice_in_one_request_is_refused_once(broker: HandlerBroker) -> None:
    request = grow("orders", 3)
    request.topics *= 2
    (result,) = (await broker.call(request)).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
