"""Levels of features: the highest ones until some are set, checked in Kafka's words, and kept over a restart."""

from __future__ import annotations

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.features import (
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    Features,
    FeatureUpdate,
    UpgradeType,
)
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore

UP, SAFE, UNSAFE = UpgradeType


def features(store: InMemoryMetadataStore | None = None, **settings: object) -> Features:
    return Features(store or InMemoryMetadataStore("features"), Settings(**settings))  # type: ignore[arg-type]


async def test_the_highest_levels_are_in_force_until_others_are_set() -> None:
    found = features()
    await found.open()
    assert found.levels == {name: levels.maximum for name, levels in SUPPORTED.items()}
    assert found.epoch == 0
    assert features(fencepost_transaction_version=1).level(TRANSACTION_VERSION) == 1


async def test_levels_that_were_set_outlive_a_restart_and_raise_the_epoch() -> None:
    store = InMemoryMetadataStore("features")
    found, calls = features(store), []
    found.on_changed.append(lambda: calls.append("changed"))
    await found.open()
    calls.clear()
    await found.update([FeatureUpdate(SHARE_VERSION, 0, SAFE), FeatureUpdate(TRANSACTION_VERSION, 1, UNSAFE)])
    await found.update([])
    again = features(store)
    await again.open()
    for one in (found, again):
        assert (one.level(SHARE_VERSION), one.level(TRANSACTION_VERSION), one.level(GROUP_VERSION)) == (0, 1, 1)
        assert one.epoch == 1
    assert calls == ["changed"]


async def test_a_level_that_an_older_broker_stored_is_raised_to_the_lowest_that_is_left() -> None:
    store = InMemoryMetadataStore("features")
    older = features(store)
    await older.open()
    await older.update([FeatureUpdate(METADATA_VERSION, 30, UP), FeatureUpdate(SHARE_VERSION, 1, UP)])
    found = features(store)
    await found.open()
    assert (found.level(METADATA_VERSION), found.level(SHARE_VERSION)) == (SUPPORTED[METADATA_VERSION].minimum, 1)


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(GROUP_VERSION, 1, UP), None),
        (FeatureUpdate(GROUP_VERSION, 0, SAFE), None),
        (FeatureUpdate(GROUP_VERSION, 0, UNSAFE), None),
        (FeatureUpdate(GROUP_VERSION, 0, UP), "Can't downgrade the version of this feature without"),
        (FeatureUpdate(GROUP_VERSION, 2, UP), "only supports versions 0-1"),
        (FeatureUpdate(GROUP_VERSION, -1, UP), "A feature version cannot be less than 0."),
        (FeatureUpdate(GROUP_VERSION, 1, 0), "does not support the given upgrade type"),
        (FeatureUpdate(METADATA_VERSION, 32, SAFE), "only supports versions 33-33"),
        (FeatureUpdate("no.such", 1, UP), "does not support this feature."),
        (FeatureUpdate("no.such", 0, UP), "Feature no.such not found."),
    ],
)
async def test_a_level_is_checked(update: FeatureUpdate, reason: str | None) -> None:
    found = features()
    await found.open()
    said = found.check(update)
    assert said is None if reason is None else reason in str(said)


async def test_a_downgrade_to_a_newer_version_is_none() -> None:
    found = features()
    await found.open()
    await found.update([FeatureUpdate(GROUP_VERSION, 0, SAFE)])
    assert found.check(FeatureUpdate(GROUP_VERSION, 1, SAFE)) == "Can't downgrade to a newer version."
    assert found.check(FeatureUpdate(GROUP_VERSION, 1, UP)) is None
