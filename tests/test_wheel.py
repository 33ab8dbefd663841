"""What is installed: one package, `fencepost`, and the command of that name."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]

_NAME = r"(?:broker|protocol)(?:\.\w+)*"
BARE_NAME = re.compile(rf"\bfrom +{_NAME} +import\b|\bimport +{_NAME}(?=[ ;,\"'`]|$)|(?:^| )-m +{_NAME}\b")
"""An import, in code or in a command, of what is there in a checkout only, and twice there."""


def build_wheel(root: Path, directory: Path) -> Path:
    (path,) = WheelBuilder(str(root)).build(directory=str(directory), versions=["standard"])
    return Path(path)


def test_the_wheel_holds_one_package_and_the_command(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(ROOT, tmp_path)) as wheel:
        names = wheel.namelist()
        (entry_points,) = (name for name in names if name.endswith("/entry_points.txt"))
        declared = wheel.read(entry_points).decode()
        assert "fencepost = fencepost.cli.main:main" in declared
        assert "fencepost = fencepost.testing.plugin" in declared
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"fencepost"}
    assert not [name for name in names if "__pycache__" in name or "test" in name.replace("fencepost/testing/", "")]
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "fencepost").rglob("*.py")}
    assert sources | {"fencepost/py.typed"} <= set(names)


@pytest.mark.parametrize("name", ["broker", "protocol"])
def test_the_short_names_of_a_checkout_are_links_into_the_one_tree(name: str) -> None:
    assert (ROOT / name).is_symlink()
    assert (ROOT / name).resolve() == (ROOT / "fencepost" / name).resolve()
    assert not any(path.is_symlink() for path in (ROOT / "fencepost").rglob("*"))


@pytest.mark.parametrize("place", ["fencepost", "tests", "scripts", "docs", "docker"])
def test_nothing_imports_the_folders_by_their_bare_names(place: str) -> None:
    """Ruff sees imports; this sees those in strings, documents and shell scripts, too."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (ROOT / place).rglob("*")
        if path.is_file() and (path.suffix in (".py", ".md", ".sh", ".yaml") or not path.suffix)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if BARE_NAME.search(line)
    ]
    assert not found, "write fencepost.broker and fencepost.protocol:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("from {}.log import x", True),
        ("import {}.reader", True),
        ("'import {}'", True),
        ("python -m {}", True),
        ("from fencepost.{}.log import x", False),
        ("import fencepost.{}", False),
        ("AddPartitionsToTxn from {} to {}, one", False),
    ],
)
def test_bare_names_are_distinguished_from_words(line: str, is_bare: bool) -> None:
    assert bool(BARE_NAME.search(line.replace("{}", "broker"))) is is_bare
