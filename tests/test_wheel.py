"""The wheel holds the broker and the protocol, and starts as `fencepost`."""

from __future__ import annotations

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_holds_the_two_packages_and_the_command(tmp_path: Path) -> None:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        (entry_points,) = (name for name in names if name.endswith("/entry_points.txt"))
        assert "fencepost = fencepost.broker.main:main" in wheel.read(entry_points).decode()
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"fencepost"}
    assert not [name for name in names if "__pycache__" in name or "test" in name]
    sources = {
        f"fencepost/{path.relative_to(ROOT)}"
        for package in ("broker", "protocol")
        for path in (ROOT / package).rglob("*.py")
    }
    assert sources <= set(names)
