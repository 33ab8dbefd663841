"""Descriptors, shared: files give way to connections, but keep some, and there are always a few for everything else."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.storage import descriptors
from fencepost.broker.storage.descriptors import LEAST_RESERVED, Descriptors


@given(limit=st.integers(8, 2_000_000), share=st.floats(0, 1))
def test_connections_and_files_together_never_need_all(limit: int, share: float) -> None:
    shared = Descriptors(limit)
    assert 1 <= shared.connection_limit < limit
    connections = round(shared.connection_limit * share)
    shared.connected(connections)
    assert 1 <= shared.file_limit <= limit // 2
    assert connections + shared.file_limit <= limit - min(LEAST_RESERVED, limit // 2)


def test_more_connections_lower_the_limit_of_open_files() -> None:
    shared = Descriptors(1_024)
    limits: list[int] = []
    shared.on_fewer_files = lambda: limits.append(shared.file_limit)
    for connection_count in (1, 300, 384, 385, 500, 400, 704):
        shared.connected(connection_count)
    assert limits == [511, 396, 256]
    shared.connected(0)
    assert shared.file_limit == 512


@pytest.mark.parametrize(
    ("connection_count", "open_file_count", "has_room"), [(399, 96, True), (400, 96, False), (400, 95, True)]
)
def test_each_connection_could_have_a_second_descriptor_or_none_is_given(
    connection_count: int, open_file_count: int, has_room: bool
) -> None:
    shared = Descriptors(1_024)
    shared.open_file_count = lambda: open_file_count
    shared.connected(connection_count)
    assert shared.has_room_for_each_connection is has_room


@pytest.mark.parametrize(("soft", "hard"), [(100, 200), (200, 200), (64, 4_096)])
def test_the_limit_is_raised_to_the_users_maximum(soft: int, hard: int) -> None:
    program = (
        "import resource; from fencepost.broker.storage.descriptors import descriptor_limit, raise_limit;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "raise_limit(); print(descriptor_limit())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(found.stdout) == hard


def test_the_limit_of_a_system_without_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    descriptors.raise_limit()
    assert Descriptors(descriptors.descriptor_limit()).connection_limit > 1_000_000


def test_where_infinity_is_refused_there_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[int] = []

    def refuse_infinity(_: int, limits: tuple[int, int]) -> None:
        wanted.append(limits[0])
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse_infinity)
    descriptors.raise_limit()
    assert wanted == [resource.RLIM_INFINITY, 10_240]
