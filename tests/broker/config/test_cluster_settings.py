"""Settings of a broker that is one of several machines."""

from __future__ import annotations

import pytest

from fencepost.broker.config import ConfigurationError, load_settings
from fencepost.broker.config.cluster_settings import LONGEST_LEASE_MS


def test_a_broker_is_alone_by_default() -> None:
    settings = load_settings(environment={}).settings
    assert (settings.fencepost_cluster_url, settings.fencepost_cluster_objects) == (None, None)
    assert settings.fencepost_cluster_lease_ms >= 3 * settings.fencepost_cluster_lease_renewal_ms


def test_the_database_and_the_object_store_belong_together() -> None:
    with pytest.raises(ConfigurationError, match="belong together") as refused:
        load_settings(assignments=["fencepost.cluster.url=postgresql://a:secret@h/d"], environment={})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "assignment",
    [
        "fencepost.cluster.lease.ms=999",
        f"fencepost.cluster.lease.ms={LONGEST_LEASE_MS + 1}",
        "fencepost.cluster.garbage.ms=599999",
        "fencepost.cluster.inline.max.bytes=1048577",
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match=assignment.partition("=")[0]):
        load_settings(assignments=[assignment], environment={})
