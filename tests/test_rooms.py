"""The rooms of the package: what lies flat, what handlers/ holds, and that no modules, scripts included, import
each other in a circle.

The layers contract in pyproject.toml says which room may import which; this sees imports for types, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fencepost.broker.requests.served import SERVED
from tests.support.source_trees import ROOT, product_files, tree_of

MOST_FLAT_FILES = 8


def modules() -> dict[str, Path]:
    found = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in product_files()}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported_by(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circles(imports: dict[str, set[str]]) -> list[str]:
    """The modules that are left when modules without imports, and imports of these, are taken away again and again."""
    left = {name: set(targets) for name, targets in imports.items()}
    while done := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in done:
            del left[name]
    # What only imports a circle is in none.
    while unused := [name for name in left if not any(name in targets for targets in left.values())]:
        for name in unused:
            del left[name]
    return sorted(left)


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    assert not circles({name: set(imported_by(path, known)) - {name} for name, path in known.items()})


def test_a_circle_is_found_without_the_rooms_that_lead_to_it() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == ["b", "c"]


def test_few_files_lie_flat() -> None:
    assert len(list((ROOT / "fencepost" / "broker").glob("*.py"))) <= MOST_FLAT_FILES


def test_handlers_holds_families_of_apis_and_nothing_else() -> None:
    families = {served.module for served in SERVED.values()}
    assert {path.stem for path in (ROOT / "fencepost" / "broker" / "handlers").glob("*.py")} == families | {"__init__"}
