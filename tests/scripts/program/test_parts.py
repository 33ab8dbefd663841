"""The list of parts has Python and shared libraries, each with a version; the needed C library is the newest named."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from scripts.program.parts import add_to_sbom, newest_c_library


def test_python_and_shared_libraries_are_added_to_the_packages(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"components": [{"name": "click", "version": "8"}]}))
    add_to_sbom(sbom, [tmp_path / "libfence.so.1", tmp_path / "libpython3.13.so.1.0"])
    components = json.loads(sbom.read_text())["components"]
    assert [each["name"] for each in components[:3]] == ["click", "cpython", "libfence.so.1"]
    assert components[1]["purl"] == f"pkg:generic/python@{platform.python_version()}"
    assert components[2]["description"] == "shared library libfence.so.1"
    assert components[3]["description"] == "shared library libzstd.a", "of the launcher"
    assert len({each.get("bom-ref") for each in components}) == 4


def test_the_c_library_is_as_new_as_the_newest_name_in_a_program(tmp_path: Path) -> None:
    (tmp_path / "library").write_bytes(b"\x7fELF GLIBC_2.3.4 GLIBC_2.34 GLIBC_2.9 GLIBC_PRIVATE")
    (tmp_path / "text").write_bytes(b"GLIBC_2.99")
    assert newest_c_library([tmp_path / "library", tmp_path / "text"]) == "2.34"
