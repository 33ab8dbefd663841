"""Configs by name: changed one name at a time, kept while a name has any."""

from __future__ import annotations

from fencepost.broker.config import AlterationRefusal
from fencepost.broker.hosting.configs_by_name import Configs, ConfigsByName
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.protocol.errors import ErrorCode

REFUSAL = AlterationRefusal(ErrorCode.INVALID_CONFIG, "not that")


def configs_by_name() -> ConfigsByName:
    def check(name: str, configs: Configs) -> AlterationRefusal | None:
        return REFUSAL if configs.get("size") == "none" else None

    return ConfigsByName(InMemoryMetadataStore(), "key", "kind", check)


async def test_names_are_changed_one_by_one_and_go_with_their_last_config() -> None:
    configs = configs_by_name()
    for name in ("a", "b"):
        await configs.alter(name, lambda _: {"size": "1"}, validate_only=False)
    before = configs.all
    await configs.alter("a", lambda current: {**current, "color": "red"}, validate_only=False)
    assert configs.all is not before
    await configs.alter("b", lambda _: {}, validate_only=False)
    assert configs.all == {"a": {"size": "1", "color": "red"}}
    assert configs.of("b") == {}


async def test_a_refused_or_tried_change_changes_nothing() -> None:
    configs = configs_by_name()
    assert await configs.alter("a", lambda _: {"size": "1"}, validate_only=True) == (ErrorCode.NONE, None)
    assert await configs.alter("a", lambda _: {"size": "none"}, validate_only=False) == REFUSAL
    assert await configs.alter("a", lambda _: REFUSAL, validate_only=False) == REFUSAL
    assert not configs.all
