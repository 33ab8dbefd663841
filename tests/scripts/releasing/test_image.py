"""An image that cannot be built is a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.releasing.image import ENGINE, ImageError, build, engine


def engine_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int) -> None:
    (folder / name).write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv(ENGINE, raising=False)


@pytest.mark.parametrize("chosen", ["podman", "Docker", ""])
def test_an_engine_that_is_not_known_is_refused(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, chosen)
    with pytest.raises(ImageError, match="docker, buildah or none"):
        engine()


def test_an_engine_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(ENGINE, "buildah")
    with pytest.raises(ImageError, match="buildah, which is not installed"):
        engine()


def test_an_engine_that_builds_nothing_is_named_with_the_way_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_on_path(tmp_path, monkeypatch, "buildah", 125)
    monkeypatch.setenv(ENGINE, "buildah")
    with pytest.raises(ImageError, match=f"buildah has built no image.*{ENGINE}=none leaves it out"):
        build("fencepost:tried", tmp_path / "image.tar")


def test_a_docker_without_buildx_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine_on_path(tmp_path, monkeypatch, "docker", 1)
    assert engine() == "none"
