"""The files of the one-file program: Python without the parts that no command uses, packages, and shared libraries.

bin/python3, bin/python3._pth     Python, which takes modules from this tree alone and no PYTHON... variable
bin/fencepost                     the script that the launcher runs
lib/python3.X, lib/packages       the standard library; Fencepost and its libraries
lib/*.so*                         shared libraries of the building system, except those of the C library
"""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"

LEFT_OUT: Final = frozenset(
    [
        "__pycache__",
        "__phello__",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
        "venv",
    ]
)
"""Folders of the standard library."""
LEFT_OUT_MODULES: Final = re.compile(
    r"(_test|xx|_xx|_tkinter|readline|_curses|_dbm|_gdbm|_crypt|nis|spwd|ossaudiodev|audioop|_ctypes_test)"
)
"""Beginnings of names of compiled modules."""
OF_THE_C_LIBRARY: Final = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|nss_\w+|BrokenLocale|thread_db))\.so\.\d+"
)
DLOPENED: Final = ("libgcc_s.so.1",)
"""Not linked: the C library loads it when a thread ends early."""

SCRIPT: Final = "from fencepost.cli.main import main\n\nmain()\n"


def make_tree(wheel: Path, lock: Path, root: Path) -> None:
    """Make the tree in an empty folder. Raises subprocess.CalledProcessError."""
    library = root / "lib" / VERSION
    _copy_standard_library(library)
    packages = root / "lib" / "packages"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-deps",
    )
    _run(*pip, "--require-hashes", "--only-binary", ":all:", "--target", packages, "--requirement", lock)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    _run(*pip, "--target", packages, wheel)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for path in packages.glob("*.dist-info/direct_url.json"):
        path.unlink()  # where the wheel was on this machine
    _leave_out_tests(packages)
    programs = root / "bin"
    programs.mkdir()
    shutil.copy(Path(sys.executable).resolve(), programs / "python3")
    paths = (f"../lib/{VERSION}", f"../lib/{VERSION}/lib-dynload", "../lib/packages")
    (programs / "python3._pth").write_text("".join(f"{path}\n" for path in paths))
    (programs / "fencepost").write_text(SCRIPT)
    _copy_shared_libraries(root)
    # Unchecked: the sources keep no times.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(root / "lib", maxlevels=30, quiet=1, invalidation_mode=mode, stripdir=str(root)):
        raise SystemExit("program: a module cannot be compiled")


def files_of(root: Path) -> dict[str, Path]:
    """The files of a tree by their paths in it."""
    return {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}


def shared_libraries(root: Path) -> list[Path]:
    """Those that came from the building system, and Python's own."""
    return sorted(path for path in (root / "lib").iterdir() if path.is_file())


def _copy_standard_library(target: Path) -> None:
    source = Path(sysconfig.get_path("stdlib"))

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).name == "lib-dynload"
        return {
            name
            for name in names
            if name in LEFT_OUT or name.startswith("config-") or (inside and LEFT_OUT_MODULES.match(name))
        }

    shutil.copytree(source, target, ignore=ignored)


def _leave_out_tests(packages: Path) -> None:
    for path in sorted(packages.rglob("*")):
        if path.is_dir() and path.name in ("tests", "test") and path.parent != packages / "fencepost":
            shutil.rmtree(path)


def _copy_shared_libraries(root: Path) -> None:
    """Copy those that the programs here need, remove debug symbols, and have all be found in `lib`."""
    library = root / "lib"
    found: dict[str, Path] = {}
    for path in _binaries(root):
        found |= _needed(path, root)
    for name in DLOPENED:
        found[name] = Path(_output("gcc", f"-print-file-name={name}").strip())
    for name, path in found.items():
        shutil.copy(path.resolve(), library / name)
    for path in _binaries(root):
        path.chmod(0o755)
        _run("strip", "--strip-unneeded", path)
        of_others = _output("patchelf", "--print-rpath", path).strip()
        if path.parent == root / "bin":
            # Not RUNPATH: this holds for the libraries of libraries, too.
            _run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", path)
        elif of_others.startswith("$ORIGIN"):
            back = "/".join([".."] * len(path.parent.relative_to(library).parts))
            _run("patchelf", "--force-rpath", "--set-rpath", f"{of_others}:$ORIGIN/{back}", path)
        elif of_others:
            _run("patchelf", "--remove-rpath", path)


def _binaries(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _needed(path: Path, root: Path) -> dict[str, Path]:
    """Where the shared libraries of a binary are on this system, without those of the tree and of the C library."""
    found = {}
    for name, place in re.findall(r"^\s+(\S+) => (.+?)(?: \(0x|$)", _output("ldd", path), re.MULTILINE):
        if OF_THE_C_LIBRARY.fullmatch(name) or Path(place).is_relative_to(root):
            continue
        if place == "not found":
            raise SystemExit(f"program: {path} needs {name}, which is not on this system")
        found[name] = Path(place)
    return found


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
