"""The version of the broker."""

from __future__ import annotations

from importlib import metadata

import pytest

from fencepost.broker.kernel.version import build_version


def test_the_version_is_that_of_the_package_and_unknown_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    build_version.cache_clear()
    assert build_version() == metadata.version("fencepost")

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("fencepost.broker.kernel.version.version", missing)
    build_version.cache_clear()
    assert build_version() == "unknown"
    build_version.cache_clear()
