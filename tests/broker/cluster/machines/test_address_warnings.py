"""Addresses of a cluster: which are warned of, and which are not."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.cluster.machines.address_warnings import _warn_of_loopback, warn_of_addresses
from fencepost.broker.cluster.objects.location import read_location
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.config import Settings
from tests.support.captured_events import capture_logs


@pytest.mark.parametrize(
    ("host", "advertised", "warned"),
    [
        ("db.example", "localhost", True),
        ("db.example:5432,10.0.0.7", "127.0.0.1", True),
        ("[2001:db8::1]:5432", "[::1]", True),
        ("db.example", "broker-1.example", False),
        ("localhost:5432", "localhost", False),
        ("%2Ftmp%2Fsockets", "localhost", False),
        ("[::1]", "127.0.0.2", False),
        ("db.example", "[::ffff:127.0.0.1]", True),
    ],
)
def test_a_loopback_address_is_named_where_the_database_is_on_another_machine(
    host: str, advertised: str, *, warned: bool
) -> None:
    settings = Settings(
        listeners=("PLAINTEXT://0.0.0.0:9092",), advertised_listeners=(f"PLAINTEXT://{advertised}:9092",)
    )
    with capture_logs() as lines:
        _warn_of_loopback(settings, parse_address(f"postgresql://fencepost@{host}/fencepost"))
    assert [line["event"] for line in lines] == ["loopback_address_advertised"] * warned


def warned(settings: dict[str, Any], url: str, objects: str) -> list[str]:
    with capture_logs() as lines:
        warn_of_addresses(Settings(**settings), parse_address(url), read_location(objects))
    return [line["event"] for line in lines]


HERE: dict[str, Any] = {"listeners": ("PLAINTEXT://127.0.0.1:9092",)}
ELSEWHERE: dict[str, Any] = {
    "listeners": ("PLAINTEXT://0.0.0.0:9092",),
    "advertised_listeners": ("PLAINTEXT://broker-1.example:9092",),
}
ENCRYPTED: dict[str, Any] = {
    "listeners": ("SSL://0.0.0.0:9092",),
    "advertised_listeners": ("SSL://broker-1.example:9092",),
}
LOCAL, REMOTE = "postgresql://fencepost@localhost/fencepost", "postgresql://fencepost@db.example/fencepost"
BUCKET = "s3://bucket?endpoint="


def test_a_cluster_on_one_machine_is_not_warned_of() -> None:
    assert warned(HERE, LOCAL, f"{BUCKET}http://127.0.0.1:9000") == []


def test_each_way_between_machines_without_tls_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warned(ELSEWHERE, REMOTE, f"{BUCKET}http://minio.example:9000") == [
        "brokers_without_tls",
        "database_not_verified",
        "objects_without_tls",
    ]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    assert warned(HERE, LOCAL, "s3://bucket") == ["objects_without_tls"]


@pytest.mark.parametrize("mode", ["disable", "prefer", "require"])
def test_a_mode_that_does_not_verify_postgresql_is_warned_of(mode: str) -> None:
    assert warned(ENCRYPTED, f"{REMOTE}?sslmode={mode}", "s3://bucket") == ["database_not_verified"]
    assert warned(ENCRYPTED, f"postgresql://a@localhost,db.example/b?sslmode={mode}", "s3://bucket") == [
        "database_not_verified"
    ]


def test_ways_with_tls_are_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warned(ENCRYPTED, f"{REMOTE}?sslmode=verify-full", f"{BUCKET}https://minio.example") == []
    monkeypatch.setenv("PGSSLMODE", "verify-ca")
    assert warned(ENCRYPTED, REMOTE, "s3://bucket") == []
