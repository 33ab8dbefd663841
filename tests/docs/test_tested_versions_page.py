"""The page of tested versions lists what the tests of compatibility install."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.tested_versions_page import PAGE, ROOT, pins, versions_page


def test_the_page_is_current() -> None:
    present = PAGE.read_text(encoding="utf-8")
    assert present == versions_page(present), "run python -m scripts.tested_versions_page"


def test_a_pin_of_every_registry_is_found() -> None:
    assert {pin.registry for pin in pins()} == {"PyPI", "npm", "Go", "crates.io", "Maven"}


def test_a_version_with_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    jvm = _copy_of_the_pins(tmp_path) / "tests" / "compat" / "jvm.py"
    jvm.write_text('java_program(("kafka-streams", OTHER))', encoding="utf-8")
    with pytest.raises(ValueError, match="kafka-streams is pinned by OTHER"):
        pins(tmp_path)


def test_a_raised_pin_makes_the_page_differ(tmp_path: Path) -> None:
    present = PAGE.read_text(encoding="utf-8")
    raised = _copy_of_the_pins(tmp_path) / "tests" / "compat" / "rust-rdkafka" / "Cargo.toml"
    raised.write_text('[dependencies]\nrdkafka = { version = "=99.0.0" }\n', encoding="utf-8")
    assert "| crates.io | `rdkafka` | 99.0.0 |" in versions_page(present, tmp_path)


def test_a_file_without_a_pin_is_an_error(tmp_path: Path) -> None:
    (_copy_of_the_pins(tmp_path) / "requirements.lock").write_text("other==1.0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"requirements\.lock pins no client"):
        pins(tmp_path)


def _copy_of_the_pins(root: Path) -> Path:
    for file in {pin.file for pin in pins()}:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    return root
