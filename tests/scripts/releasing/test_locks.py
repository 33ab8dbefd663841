"""A lock file without a requirement of pyproject.toml, or with another pin than its fellow, is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.releasing.locks import faults

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "requirements.lock", "scripts/lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_the_locks_of_this_checkout_fit(checkout: Path) -> None:
    assert faults(checkout) == []


def test_a_requirement_that_no_pin_satisfies_is_named_with_each_lock(checkout: Path) -> None:
    change(checkout / "pyproject.toml", '"h11>=0.14"]\n# What', '"h11>=99"]\n# What')
    assert faults(checkout) == [
        f"{name} has no version of h11>=99: run ./scripts/lock"
        for name in ("requirements.lock", "requirements/cluster.lock", "requirements/program.lock")
    ]


def test_a_part_with_a_pin_of_its_own_is_named(checkout: Path) -> None:
    change(checkout / "requirements" / "broker-image.lock", "h11==", "h11==9")
    (found,) = faults(checkout)
    assert found.startswith("requirements/broker-image.lock has h11==9")
    assert found.endswith("and requirements.lock has not")
