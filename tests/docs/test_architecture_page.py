"""Pages about the code name what there is: paths, modules, functions, settings, rooms."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from fencepost.broker.config import SETTINGS, TOPIC_SETTINGS
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS
from fencepost.cli.commands import COMMANDS
from fencepost.protocol.errors import ErrorCode
from tests.support.source_trees import ROOT, product_files, tree_of

PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("architecture.md", "changing.md", "words.md")
}
ARCHITECTURE = PAGES["architecture.md"]
SOURCES = ("fencepost", "tests")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"[\w.-]+(/[\w.-]*)+|[\w-]+\.(md|toml|py|lock)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FUNCTION_IN_TABLE = re.compile(r"\| (\d+) \| `([^`]+\.py)` \| ([^|]+) \|")

OTHERS = {
    ".log",
    "@api",
    "@message",
    "@plants(CHECK)",
    'CHECK = Place("check of something", Policy.RETRY)',
    "Exception",
    "TYPE_CHECKING",
    "check_…",
    "decide_…",
    "fencepost_",
    "group.instance.id",
    "has_effect=False",
    "integration",
    "lint-imports",
    "now_ms",
    "read_committed",
    "require_…",
    "settings.the_name",
}
"""Spans of these pages that name nothing of the code."""
COMMAND = re.compile(r"(?:(\./scripts/\w+)|python -m ([\w.]+)|fencepost (\w+).*|serve|repair|dump)( .*)?")


@cache
def sources() -> dict[str, str]:
    """The text of every module, by its path."""
    found = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


@cache
def definitions(path: str) -> frozenset[str]:
    """What a module defines; methods and attributes also as `Class.name`, and the names of arguments."""
    return frozenset(_names_in(ast.parse(sources()[path]), ""))


def _names_in(node: ast.AST, prefix: str) -> list[str]:
    names: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names += [child.name, prefix + child.name]
            names += _names_in(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    names += [target.id, prefix + target.id]
                elif isinstance(target, ast.Attribute):
                    names += [target.attr, prefix + target.attr]
        elif isinstance(child, ast.arg):
            names.append(child.arg)
        else:
            names += _names_in(child, prefix)
    return names


def is_defined(name: str) -> bool:
    """Only modules that hold all parts of the name are parsed."""
    parts = name.split(".")
    return IDENTIFIER.fullmatch(name) is not None and any(
        name in definitions(path) for path, text in sources().items() if all(part in text for part in parts)
    )


def resolves(dotted: str) -> bool:
    """Whether a name that begins with `fencepost.` can be imported."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


@cache
def events() -> frozenset[str]:
    """What the broker logs."""
    logged = re.compile(r"log\.\w+\(\s*\"(\w+)\"")
    return frozenset(
        name
        for path, text in sources().items()
        if path.startswith("fencepost/broker/")
        for name in logged.findall(text)
    )


def says_something_true(span: str) -> bool:
    if span in OTHERS:
        return True
    command = COMMAND.fullmatch(span)
    if command is not None:
        script, module, subcommand, _ = command.groups()
        return (
            (script is None or (ROOT / script).exists())
            and (module is None or importlib.util.find_spec(module) is not None)
            and (subcommand is None or subcommand in COMMANDS)
        )
    if PATH.fullmatch(span):
        return (ROOT / span).exists()
    if span.startswith("fencepost.") and span not in SETTINGS:
        return resolves(span)
    if span in SETTINGS or span in TOPIC_SETTINGS or span in ErrorCode.__members__ or span in events():
        return True
    return (
        span in INTERNAL_TOPICS or span in contract_rooms() or span in packages_beside_the_broker() or is_defined(span)
    )


@cache
def contract_layers() -> tuple[tuple[str, ...], ...]:
    """The rooms of `pyproject.toml`, by floor, from above."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one.get("containers") == ["fencepost.broker"]]
    return tuple(tuple(name.strip() for name in layer.split("|")) for layer in layers)


def contract_rooms() -> list[str]:
    return [room for floor in contract_layers() for room in floor]


def rooms_of_the_table() -> list[str]:
    table = ARCHITECTURE.partition("| room | what lives there |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_names_is_there(page: str) -> None:
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    spans = set(SPAN.findall(text))
    assert len(spans) > 50
    wrong = sorted(span for span in spans if not says_something_true(span))
    assert not wrong, f"docs/{page} names what is not there: {wrong}"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[page])
    assert targets
    assert not [target for target in targets if not (ROOT / "docs" / target).exists()]


def test_each_step_of_a_trip_names_functions_of_its_file() -> None:
    steps = FUNCTION_IN_TABLE.findall(ARCHITECTURE)
    assert len(steps) > 25
    for number, path, functions in steps:
        for function in SPAN.findall(functions):
            assert function in definitions(path), f"step {number}: {function} is not in {path}"


def test_the_rooms_are_those_of_the_contract() -> None:
    assert rooms_of_the_table() == contract_rooms()
    picture = ARCHITECTURE.partition("```\n")[2].partition("```")[0]
    shown = re.findall(r"^ *([a-z_]+(?: \| [a-z_]+)*) {2,}\S", picture, re.MULTILINE)
    assert [tuple(names.split(" | ")) for names in shown] == [*contract_layers(), ("protocol",)]


def packages_beside_the_broker() -> dict[str, tuple[str, str]]:
    """What the table says: by package, the packages that it imports and the rooms that import it."""
    table = ARCHITECTURE.partition("| package | what lives there |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `fencepost/(\w+)(?:\.py)?` \| .* \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    return {package: (imports, rooms) for package, imports, rooms in rows}


def imported_modules(node: ast.AST) -> Iterator[str]:
    """The modules that code imports, also within functions; not those for type checking only."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            for other in part.orelse:
                yield from imported_modules(ast.Module([other], []))
        elif isinstance(part, ast.ImportFrom) and part.module == "fencepost":
            yield from (f"fencepost.{alias.name}" for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield part.module or ""
        elif isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        else:
            yield from imported_modules(part)


def owner(parts: Sequence[str]) -> str:
    """The package beside the broker, or the broker's room, that a module belongs to."""
    return "/".join(parts[1:3] if parts[1] == "broker" else parts[1:2])


@cache
def imports_between() -> frozenset[tuple[str, str]]:
    """Who imports whom: rooms as `broker/log`, packages by their name."""
    pairs = set()
    for path in product_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] == "fencepost" and parts[1] not in ("__init__", "__main__"):
            for module in imported_modules(tree_of(path)):
                if module.startswith("fencepost."):
                    pairs.add((owner(parts), owner(module.split("."))))
    return frozenset(pairs)


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def test_the_packages_beside_the_broker_import_and_are_imported_as_the_table_says() -> None:
    folders = {path.parent.name for path in (ROOT / "fencepost").glob("*/__init__.py")} - {"broker", "protocol"}
    files = {path.stem for path in (ROOT / "fencepost").glob("*.py")} - {"__init__", "__main__"}
    claimed = packages_beside_the_broker()
    assert set(claimed) == folders | files
    found = {}
    for package in claimed:
        imported = {target.split("/")[0] for source, target in imports_between() if source == package} - {package}
        rooms = {source.split("/")[1] for source, target in imports_between() if target == package and "/" in source}
        found[package] = (listed(imported), listed(rooms))
    assert found == claimed


def test_imports_within_functions_are_found_and_those_for_type_checking_are_not() -> None:
    source = """
from fencepost import soak
if TYPE_CHECKING:
    import fencepost.console
else:
    import fencepost.history
def late():
    from fencepost.broker.log.flusher import Flusher
"""
    found = list(imported_modules(ast.parse(source)))
    assert found == ["fencepost.soak", "fencepost.history", "fencepost.broker.log.flusher"]
    assert [owner(module.split(".")) for module in found] == ["soak", "history", "broker/log"]


@pytest.mark.parametrize(
    ("span", "is_true"),
    [
        ("fencepost/broker/log/durability/flusher.py", True),
        ("fencepost/broker/log/nowhere.py", False),
        ("fencepost.broker.log.durability.flusher.Flusher.request", True),
        ("fencepost.broker.log.durability.flusher.Flusher.nothing", False),
        ("Flusher.request", True),
        ("Flusher.nothing", False),
        ("flush.messages", True),
        ("KAFKA_STORAGE_ERROR", True),
        ("fencepost log verify", True),
        ("fencepost nothing", False),
        ("python -m tests.recording", True),
        ("python -m tests.nothing", False),
        ("no.such.setting", False),
    ],
)
def test_what_is_not_there_is_noticed(span: str, is_true: bool) -> None:
    assert says_something_true(span) is is_true
