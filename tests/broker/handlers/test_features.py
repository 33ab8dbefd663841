"""UpdateFeatures: levels that change at once and are kept, and Kafka's words for those that cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.features import Features, FeatureUpdate
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.broker.handlers.test_recorded_answers import recorded
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Update = tuple[str, int, int]
OTHERS = {"group.version": 1, "share.version": 2, "streams.version": 1}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


async def update(
    broker: HandlerBroker, *updates: Update, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    wanted = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=upgrade_type,
            allow_downgrade=upgrade_type == SAFE_DOWNGRADE,
        )
        for name, level, upgrade_type in updates
    ]
    response = await broker.call(UpdateFeaturesRequest(feature_updates=wanted, validate_only=validate_only), version)
    assert isinstance(response, UpdateFeaturesResponse)
    return response


async def shown(broker: HandlerBroker) -> tuple[int, dict[str, int]]:
    """The epoch and the levels that clients see."""
    response = await broker.call(ApiVersionsRequest("test", "1"), 4)
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert levels.pop("metadata.version") == 33, "there is no other"
    return response.finalized_features_epoch, levels


async def test_a_level_changes_for_clients_at_once(broker: HandlerBroker) -> None:
    assert await shown(broker) == (0, {**OTHERS, "transaction.version": 2})
    response = await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert (response.error_code, response.error_message, response.results) == (0, None, [])
    assert await shown(broker) == (1, {**OTHERS, "transaction.version": 1})
    await update(broker, ("transaction.version", 0, UNSAFE_DOWNGRADE), ("group.version", 0, UNSAFE_DOWNGRADE))
    assert await shown(broker) == (2, {"share.version": 2, "streams.version": 1})
    await update(broker, ("transaction.version", 2, UPGRADE))
    assert await shown(broker) == (3, {"share.version": 2, "streams.version": 1, "transaction.version": 2})


async def test_a_change_of_a_feature_level_notifies_its_listeners(broker: HandlerBroker) -> None:
    features = broker.services.features
    levels: list[int] = []
    features.on_changed.append(lambda: levels.append(features.level("transaction.version")))
    await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert levels == [1]


async def test_levels_outlive_the_broker() -> None:
    store, settings = InMemoryMetadataStore(), Settings(fencepost_transaction_version=1)
    features = Features(store, settings)
    await features.open()
    assert features.level("transaction.version") == 1
    await features.update([FeatureUpdate("transaction.version", 2, UPGRADE)])
    again = Features(store, settings)
    await again.open()
    assert (again.epoch, again.level("transaction.version")) == (1, 2)


async def test_the_first_version_says_downgrade_with_a_flag(broker: HandlerBroker) -> None:
    refused = await update(broker, ("transaction.version", 1, UPGRADE), version=0)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    response = await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE), version=0)
    assert response.error_code == 0
    assert [(result.feature, result.error_code) for result in response.results] == [("transaction.version", 0)]
    assert (await shown(broker))[1]["transaction.version"] == 1


async def test_validate_only_changes_nothing(broker: HandlerBroker) -> None:
    response = await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE), validate_only=True)
    assert response.error_code == 0
    assert await shown(broker) == (0, {**OTHERS, "transaction.version": 2})


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (("transaction.version", 3, UPGRADE), f"Local controller {NODE_ID} only supports versions 0-2"),
        (("transaction.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("transaction.version", 1, 0), "The controller does not support the given upgrade type."),
        (("transaction.version", 1, UPGRADE), "Can't downgrade the version of this feature without setting the "),
        (("metadata.version", 32, SAFE_DOWNGRADE), f"Local controller {NODE_ID} only supports versions 33-33"),
        (("nothing", 1, UPGRADE), f"Local controller {NODE_ID} does not support this feature."),
        (("nothing", 0, SAFE_DOWNGRADE), "Feature nothing not found."),
    ],
)
async def test_a_level_that_cannot_be_is_refused_with_all_others(
    broker: HandlerBroker, wanted: Update, reason: str
) -> None:
    response = await update(broker, ("group.version", 0, SAFE_DOWNGRADE), wanted)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    name, level, _ = wanted
    assert f"had an error: Invalid update version {level} for feature {name}. {reason}" in (
        response.error_message or ""
    )
    assert (await shown(broker))[0] == 0


async def test_a_downgrade_does_not_go_up(broker: HandlerBroker) -> None:
    await update(broker, ("transaction.version", 0, SAFE_DOWNGRADE))
    response = await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert "Can't downgrade to a newer version." in (response.error_message or "")


async def test_replies_equal_those_recorded_from_kafka(broker: HandlerBroker) -> None:
    for exchange in recorded("update_features"):
        if exchange.request.feature_updates[0].feature in ("transaction.version", "group.version"):
            await broker.services.features.update([FeatureUpdate("transaction.version", 2, UPGRADE)])
            assert await broker.call(exchange.request, exchange.version) == exchange.response


async def test_a_store_that_fails_is_reported(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **_options: object) -> bool:
        raise StorageError("the disk is full")

    monkeypatch.setattr(InMemoryMetadataStore, "compare_and_set", fail)
    response = await update(broker, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
