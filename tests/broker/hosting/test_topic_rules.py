"""Rules for topics: which replication factors are taken, alone, in several processes and in a cluster of machines."""

from __future__ import annotations

import pytest

from fencepost.broker.config import Settings, load_settings
from fencepost.broker.hosting.topic_rules import log_config, refused_factor

OF_MACHINES = ("fencepost.cluster.url=postgresql://db/fencepost", "fencepost.cluster.objects=s3://bucket")
ANY = ("fencepost.replication.factor.any=true",)


@pytest.mark.parametrize(
    ("assignments", "brokers_count", "most"),
    [
        pytest.param((), 1, 1, id="alone"),
        pytest.param((), 3, 1, id="several processes of one machine"),
        pytest.param(OF_MACHINES, 3, 3, id="three machines"),
        pytest.param(OF_MACHINES, 1, 1, id="the last of them"),
        pytest.param(ANY, 1, 100, id="any"),
        pytest.param((*OF_MACHINES, *ANY), 3, 100, id="any on three machines"),
    ],
)
def test_a_factor_is_taken_up_to_what_is_there(assignments: tuple[str, ...], brokers_count: int, most: int) -> None:
    settings = load_settings(environment={}, assignments=assignments).settings
    taken = [factor for factor in range(-2, 101) if refused_factor(factor, brokers_count, settings) is None]
    assert taken == list(range(1, most + 1))


def test_a_refusal_names_the_number_of_brokers() -> None:
    settings = load_settings(environment={}, assignments=OF_MACHINES).settings
    reason = refused_factor(4, 3, settings)
    assert reason is not None
    assert "Unable to replicate the partition 4 time(s)" in reason
    assert reason.endswith("larger than the number of brokers, which is 3.")


def test_a_topic_for_dead_letters_forgets_no_producer_and_acknowledges_nothing_before_it_is_on_the_disk() -> None:
    settings = Settings(producer_id_expiration_ms=1_000)
    topic = {"flush.messages": "1000"}
    usual = log_config(topic, settings)
    assert (usual.producer_id_expiration_ms, usual.is_durable) == (1_000, False)
    dead = log_config({**topic, "errors.deadletterqueue.group.enable": "true"}, settings)
    assert dead.producer_id_expiration_ms > 1_000 * 365 * 86_400_000
    assert dead.is_durable
