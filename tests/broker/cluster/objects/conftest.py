"""An object server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_server import ObjectServer, object_server


@pytest.fixture(scope="session")
def shared_objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def objects(shared_objects: ObjectServer) -> ObjectServer:
    """An object server that is well. Buckets are made by the tests."""
    shared_objects.heal()
    return shared_objects
