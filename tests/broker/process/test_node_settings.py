"""Settings of the processes of one broker: ids and ports follow each other, and never meet."""

from __future__ import annotations

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.network.server import StartError
from fencepost.broker.process.node_settings import check_ports, names, settings_of_node

SETTINGS = Settings(
    node_id=4,
    listeners=("PLAINTEXT://127.0.0.1:9092", "INTERNAL://127.0.0.1:0"),
    listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "INTERNAL:PLAINTEXT"),
    advertised_listeners=("PLAINTEXT://broker:19092",),
    fencepost_http_listener="http://127.0.0.1:9644",
)


def test_each_node_has_its_id_its_directory_and_the_next_ports() -> None:
    first, third = (settings_of_node(SETTINGS, "/data", index) for index in (0, 2))
    assert (first.node_id, third.node_id) == (4, 6)
    assert first.log_dirs != third.log_dirs
    assert first.listeners == ("PLAINTEXT://127.0.0.1:9092", "INTERNAL://127.0.0.1:0")
    assert third.listeners == ("PLAINTEXT://127.0.0.1:9094", "INTERNAL://127.0.0.1:0")
    assert third.advertised_listeners == ("PLAINTEXT://broker:19094",)
    assert third.fencepost_http_listener == "http://127.0.0.1:9646"
    assert names([first, third]) == "4, 6"


def test_ports_end_at_the_last_one() -> None:
    last = Settings(listeners=("PLAINTEXT://127.0.0.1:65535",))
    settings_of_node(last, "/data", 0)
    with pytest.raises(StartError, match="there is no port 65536"):
        settings_of_node(last, "/data", 1)


def test_ports_of_two_listeners_must_not_meet() -> None:
    check_ports(SETTINGS, 100)
    close = Settings(
        listeners=("PLAINTEXT://127.0.0.1:9092", "INTERNAL://127.0.0.1:9094"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "INTERNAL:PLAINTEXT"),
    )
    check_ports(close, 2)
    with pytest.raises(StartError, match="PLAINTEXT and INTERNAL would both have 9094; choose ports that are 3 apart"):
        check_ports(close, 3)
