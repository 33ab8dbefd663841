"""What the one-file program consists of beside packages, for its list of parts (SBOM, CycloneDX), and what it needs."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def add_to_sbom(sbom: Path, libraries: Iterable[Path]) -> None:
    """Add Python, the shared libraries and the decompression of the launcher to a list of parts."""
    document: dict[str, Any] = json.loads(sbom.read_text(encoding="utf-8"))
    components = document.setdefault("components", [])
    components.append(
        _component("cpython", platform.python_version(), f"pkg:generic/python@{platform.python_version()}")
    )
    for name in sorted({path.name for path in libraries} | {"libzstd.a"}):
        if name.startswith("libpython"):
            continue
        package, version = _package_of(name)
        components.append(
            _component(package or name, version, f"pkg:deb/{package}@{version}" if package else None, name)
        )
    sbom.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def newest_c_library(files: Iterable[Path]) -> str:
    """The oldest version of glibc that has all that the files need, such as 2.34."""
    needed = {(2, 17)}
    for path in files:
        content = path.read_bytes()
        if content[:4] == b"\x7fELF":
            needed |= {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)}
    return ".".join(map(str, max(needed)))


def _component(name: str, version: str, url: str | None, file: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "library", "bom-ref": f"{name}-{file or version}", "name": name, "version": version}
    if url:
        made["purl"] = url
    if file:
        made["description"] = f"shared library {file}"
    return made


def _package_of(library: str) -> tuple[str | None, str]:
    """The package of the building system that a shared library is of; without dpkg, None and an empty version."""
    try:
        owners = subprocess.run(
            ["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return None, ""
    if not owners:
        return None, ""
    package = owners.splitlines()[0].split(": ")[0].split(",")[0]
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
    )
    return package.partition(":")[0], shown.stdout
