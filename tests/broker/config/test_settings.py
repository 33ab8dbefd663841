"""Values of settings: for a listener, a mechanism, and by Kafka's other names."""

from __future__ import annotations

import pytest

from fencepost.broker.config import ConfigurationError, load_settings


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value.problems


def test_listeners_can_have_limits_of_their_own() -> None:
    limit = "listener.name.internal.max.connections"
    settings = load_settings(assignments=[f"{limit}=5", "listener.name.internal.num.network.threads=3"]).settings
    assert (settings.of_listener("max.connections", "INTERNAL"), settings.of_listeners) == (5, {limit: "5"})
    assert settings.of_listener("max.connections", "EXTERNAL") is None
    (problem,) = problems_of(assignments=[f"{limit}=many"])
    assert problem.startswith(f"--set: {limit}: expected whole number, 1 or more")
    settings.override(of_this_broker={limit: "7"}, of_all_brokers={limit: "6"})
    assert settings.of_listener("max.connections", "INTERNAL") == 7
    settings.override(of_this_broker={limit: "kept by an older version"}, of_all_brokers={limit: "6"})
    assert settings.of_listener("max.connections", "INTERNAL") == 6


def test_a_setting_is_looked_up_for_the_mechanism_then_the_listener_then_the_broker() -> None:
    name = "connections.max.reauth.ms"
    settings = load_settings(
        assignments=[
            f"{name}=1",
            f"listener.name.INSIDE.{name}=2",
            f"listener.name.inside.scram-sha-256.{name}=3",
            "listeners=INSIDE://:1,OUTSIDE://:2",
            "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        ]
    ).settings
    assert settings.for_listener(name, "INSIDE", "SCRAM-SHA-256") == 3
    assert settings.for_listener(name, "INSIDE", "PLAIN") == 2
    assert settings.for_listener(name, "INSIDE") == 2
    assert settings.for_listener(name, "OUTSIDE", "PLAIN") == 1
    settings.override(of_this_broker={f"listener.name.inside.plain.{name}": "4"}, of_all_brokers={})
    assert settings.for_listener(name, "INSIDE", "PLAIN") == 4


def test_kafkas_other_names_are_understood() -> None:
    settings = load_settings(assignments=["broker.id=9", "log.dir=somewhere"]).settings
    assert (settings.node_id, settings.log_dirs) == (9, "somewhere")
