"""The source files of the product and of the scripts, each parsed once, and the definitions in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]


@cache
def product_files() -> tuple[Path, ...]:
    return tuple(sorted(path for folder in ("fencepost", "scripts") for path in (ROOT / folder).rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def path_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def definitions(node: ast.AST, prefix: str = "", *, with_nested: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes, methods, and the names that a module gives values, by qualified name.

    with_nested: also the functions and classes within functions.
    """
    for part in ast.iter_child_nodes(node):
        if is_function(part) or isinstance(part, ast.ClassDef):
            name = prefix + part.name
            yield name, part
            if with_nested or isinstance(part, ast.ClassDef):
                yield from definitions(part, f"{name}.", with_nested=with_nested)
        elif isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if not prefix:
                yield from ((target.id, part) for target in targets if isinstance(target, ast.Name))
        elif isinstance(part, ast.stmt | ast.excepthandler | ast.match_case):
            yield from definitions(part, prefix, with_nested=with_nested)
