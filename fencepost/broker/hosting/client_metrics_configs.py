"""Subscriptions to metrics of clients: configs in the metadata store, which count from a client's next request on.

Source: KIP-714; Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.config import AlterationRefusal, ConfigValue
from fencepost.broker.config.client_metrics_settings import (
    check_client_metrics_configs,
    describe_client_metrics_configs,
    match_patterns,
)
from fencepost.broker.hosting.configs_by_name import Configs, ConfigsByName
from fencepost.broker.kernel.java_pattern import PatternError, compiled
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.errors import ErrorCode

CLIENT_METRICS_KEY: Final = "client-metrics"
MAXIMUM_SUBSCRIPTIONS: Final = 200
"""Each new client is matched with all of them in one step: some 2 ms at most."""
LONGEST_NAME: Final = 1_000
PATTERN_MEMORY_BYTES: Final = 256 * 1024
"""RE2's bound on the memory of one pattern; it takes linear time within any."""


class ClientMetricsConfigs(ConfigsByName):
    """The subscriptions, by name."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store, CLIENT_METRICS_KEY, "client_metrics", self._problem)

    def _problem(self, name: str, configs: Configs) -> AlterationRefusal | None:
        refusal = check_client_metrics_configs(configs)
        if refusal is not None:
            return refusal
        if configs and name not in self.all and len(self.all) >= MAXIMUM_SUBSCRIPTIONS:
            reason = f"there are {MAXIMUM_SUBSCRIPTIONS} subscriptions to client metrics, and no more can be kept"
            return AlterationRefusal(ErrorCode.INVALID_CONFIG, reason)
        if len(name) > LONGEST_NAME:
            return AlterationRefusal(ErrorCode.INVALID_CONFIG, f"the name has more than {LONGEST_NAME} characters")
        for _, pattern in match_patterns(configs):
            try:
                compiled(pattern, maximum_memory_bytes=PATTERN_MEMORY_BYTES)
            except PatternError as error:
                return AlterationRefusal(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {error}")
        return None

    def describe(self, name: str) -> list[ConfigValue]:
        """Every config of a subscription with its value and the value's sources."""
        return describe_client_metrics_configs(self.of(name))
