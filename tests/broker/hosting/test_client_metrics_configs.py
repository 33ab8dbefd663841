"""Subscriptions to client metrics are checked, bounded in number, and survive a restart."""

from __future__ import annotations

from fencepost.broker.hosting import client_metrics_configs
from fencepost.broker.hosting.client_metrics_configs import MAXIMUM_SUBSCRIPTIONS, ClientMetricsConfigs
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.protocol.errors import ErrorCode


async def alter(configs: ClientMetricsConfigs, name: str, **values: str) -> ErrorCode:
    error, _ = await configs.alter(name, lambda _: values, validate_only=False)
    return ErrorCode(error)


async def test_a_subscription_is_there_after_a_restart() -> None:
    store = InMemoryMetadataStore()
    assert await alter(ClientMetricsConfigs(store), "mine", metrics="*") is ErrorCode.NONE
    again = ClientMetricsConfigs(store)
    await again.open()
    assert (list(again.names()), again.of("mine")) == (["mine"], {"metrics": "*"})


async def test_a_pattern_that_is_none_or_another_in_re2_is_refused() -> None:
    configs = ClientMetricsConfigs(InMemoryMetadataStore())
    for pattern in ("(a", "(?=a)", "a**", "(?:(?:[a-z]{500}){500}){9}"):
        assert await alter(configs, "mine", match=f"client_id={pattern}") is ErrorCode.INVALID_CONFIG
    assert not configs.all


async def test_subscriptions_and_their_names_are_bounded() -> None:
    configs = ClientMetricsConfigs(InMemoryMetadataStore())
    for number in range(MAXIMUM_SUBSCRIPTIONS):
        assert await alter(configs, str(number), metrics="*") is ErrorCode.NONE
    assert await alter(configs, "one more", metrics="*") is ErrorCode.INVALID_CONFIG
    assert await alter(configs, "0", metrics="a") is ErrorCode.NONE
    assert await alter(configs, "0") is ErrorCode.NONE
    assert (
        await alter(configs, "x" * (client_metrics_configs.LONGEST_NAME + 1), metrics="*") is ErrorCode.INVALID_CONFIG
    )
    assert await alter(configs, "one more", metrics="*") is ErrorCode.NONE


async def test_a_subscription_reaches_the_other_nodes_of_a_store() -> None:
    store = InMemoryMetadataStore()
    here, there = ClientMetricsConfigs(store), ClientMetricsConfigs(store)
    await there.open()
    await here.alter("all", lambda _: {"metrics": "*"}, validate_only=False)
    before = there.all
    await there.open()
    assert there.of("all") == {"metrics": "*"}
    assert there.all is not before, "by which a node learns that it has to ask its clients anew"
