"""Which files need packages that this environment does not have."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

OURS = ("fencepost", "tests", "scripts")
IMPORT = re.compile(r"^(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w., ]+))", re.MULTILINE)
"""An import that runs with its module: what is indented is in a function, or for the type checker alone."""


def is_missing(package: str) -> bool:
    """Whether a package of others is not installed."""
    root = package.partition(".")[0]
    return root not in OURS and root not in sys.stdlib_module_names and find_spec(root) is None


class Imports:
    """Follows imports at the top of our own modules. Reads each file once."""

    def __init__(self, root: Path, is_missing: Callable[[str], bool] = is_missing) -> None:
        self._root = root
        self._is_missing = is_missing
        self._modules: dict[Path, tuple[list[Path], set[str]]] = {}

    def missing(self, test_file: str) -> set[str]:
        """The packages that are missing for a test file and for the conftest.py files around it."""
        path = self._root / test_file
        folders = [folder for folder in path.parents if self._root in (folder, *folder.parents)]
        reached: set[Path] = set()
        found: set[str] = set()
        waiting = [path, *(one for folder in folders if (one := folder / "conftest.py").exists())]
        while waiting:
            module = waiting.pop()
            if module not in reached:
                reached.add(module)
                ours, missing = self._module(module)
                waiting += ours
                found |= missing
        return found

    def _module(self, path: Path) -> tuple[list[Path], set[str]]:
        """The files of ours that a module imports, and the missing packages."""
        if path not in self._modules:
            source = path.read_text(encoding="utf-8")
            names = set(imported(source))
            places = [self._root.joinpath(*name.split(".")) for name in names if name.partition(".")[0] in OURS]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            missing = {name.partition(".")[0] for name in names if self._is_missing(name)}
            if missing:  # perhaps only lines of a text
                missing &= {name.partition(".")[0] for name in all_imports(source)}
            self._modules[path] = [file for file in files if file.exists()], missing
        return self._modules[path]


def imported(source: str) -> Iterator[str]:
    """The names of modules that a source imports when it is imported itself; perhaps names in modules, too."""
    for found in IMPORT.finditer(source):
        module, names, modules = found.groups()
        if module is not None:
            yield module
            if module.partition(".")[0] in OURS:
                yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?(?:,|\s*$|\s*\)|\s*#)", names))
        else:
            yield from (name.split()[0] for name in modules.split(","))


def all_imports(source: str) -> set[str]:
    """The names of all modules that a source imports, wherever it does. A source with a syntax error has none."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return set()
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
