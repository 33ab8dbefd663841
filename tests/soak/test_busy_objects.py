"""Tests for the object store of a soak: that it serves, and that it refuses and keeps silent when it shall."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import pytest

from fencepost.broker.cluster.objects.location import read_location
from fencepost.soak import busy_objects
from fencepost.soak.busy_objects import NO_TROUBLE, Trouble, set_trouble
from fencepost.soak.free_port import free_port
from fencepost.soak.trial_services import BUCKET, trial_objects


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with trial_objects(tmp_path, free_port(), module=busy_objects.__name__) as service:
        yield f"{read_location(service.url).endpoint}/{BUCKET}"


def put(endpoint: str, name: str) -> int:
    request = urllib.request.Request(f"{endpoint}/{name}", data=b"content", method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(answer.status)


def test_it_answers_slow_down_while_it_is_busy_and_stores_nothing(endpoint: str, tmp_path: Path) -> None:
    set_trouble(tmp_path, Trouble(refused=1.0, unanswered=0.0))
    with pytest.raises(HTTPError) as refused:
        put(endpoint, "one")
    with refused.value as reply:
        assert reply.code == 503
        assert b"<Code>SlowDown</Code>" in reply.read()
    set_trouble(tmp_path, NO_TROUBLE)
    assert put(endpoint, "two") == 200
    assert [path.name for path in (tmp_path / "buckets" / BUCKET).iterdir()] == ["two"]


def test_it_stores_some_of_the_objects_that_it_does_not_answer_for(endpoint: str, tmp_path: Path) -> None:
    set_trouble(tmp_path, Trouble(refused=0.0, unanswered=1.0, silent_s=0.0))
    names = {f"object-{number}" for number in range(64)}
    for name in names:
        with pytest.raises((HTTPException, OSError)):
            put(endpoint, name)
    stored = {path.name for path in (tmp_path / "buckets" / BUCKET).iterdir()}
    # With 64 coins, neither is empty.
    assert stored
    assert names - stored
