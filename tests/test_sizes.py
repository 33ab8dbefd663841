"""Sizes may only fall: lines of functions and files, parameters, and definitions that nothing uses.

What is larger than a limit is listed below with today's size. A test fails if it grows, and also if it shrinks or
is gone while its row still has the old number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.source_trees import ROOT, definitions, is_function, path_of, product_files, tree_of

LONGEST_FUNCTION = 60
LONGEST_FILE = 500
MOST_PARAMETERS = 8

LONG_FUNCTIONS: dict[str, int] = {
    "fencepost/cli/consume.py: consume": 66,
    "fencepost/cli/produce.py: produce": 76,
    "fencepost/cli/soak.py: soak": 69,
}

MANY_PARAMETERS: dict[str, int] = {
    "fencepost/broker/cluster/remote/remote_logs.py: RemoteLogs.__init__": 10,
    "fencepost/broker/log/partition_log.py: PartitionLog.__init__": 13,
    "fencepost/broker/log/recovery/recovery.py: LogRecovery.__init__": 9,
    "fencepost/broker/log/segment/segment.py: Segment.__init__": 10,
    "fencepost/broker/node/node.py: Node.__init__": 14,
    "fencepost/broker/process/serve_settings.py: load": 9,
    "fencepost/broker/share/partition.py: SharePartition.acquire": 9,
    "fencepost/cli/consume.py: consume": 16,
    "fencepost/cli/groups.py: reset_offsets": 11,
    "fencepost/cli/produce.py: produce": 16,
    "fencepost/protocol/record_batch.py: build_batch": 10,
    "fencepost/protocol/stored/transaction_state.py: pack_transaction_log_value": 12,
    "scripts/benchmarks/clients/librdkafka_throughput.py: produce": 9,
}

LONG_FILES: dict[str, int] = {
    "fencepost/broker/coordination/runtime.py": 756,
    "fencepost/broker/group/service.py": 578,
    "fencepost/broker/group/shard.py": 603,
    "fencepost/broker/hosting/topics.py": 744,
    "fencepost/broker/inspection/partition_scan.py": 773,
    "fencepost/broker/log/producers/producer_state.py": 556,
    "fencepost/broker/log/recovery/recovery.py": 712,
    "fencepost/broker/metadata/sqlite.py": 720,
    "fencepost/broker/network/connection.py": 514,
    "fencepost/broker/produce/produce_append.py": 556,
    "fencepost/broker/storage/local_disk.py": 560,
    "fencepost/broker/transaction/service.py": 572,
    "fencepost/broker/transaction/shard.py": 669,
    "fencepost/protocol/record_validation.py": 607,
}

TABLES = {
    "fencepost/broker/config/table.py": "one row for each setting; a reader searches it for one name",
}
"""Files that are tables, and why they are of any length."""

CALLED_BY_LIBRARIES = {
    "fencepost/cli/commands.py: LazyGroup.format_commands": "click calls it for --help",
    "fencepost/cli/commands.py: LazyGroup.resolve_command": "click calls it to find a command",
    "fencepost/cli/token_login.py: _TokenScram.is_authenticated": "kafka-python calls it after a log-in",
    "fencepost/broker/kernel/lean_imports.py: _NamesOfSsl.SSLSyscallError": "asyncio names it in its except clauses",
    "fencepost/broker/kernel/lean_imports.py: _NamesOfSsl.SSLZeroReturnError": "asyncio names it in its except clauses",
    "fencepost/broker/kernel/lean_imports.py: _NamesOfSsl.CertificateError": "asyncio names it in its except clauses",
    "fencepost/broker/kernel/unannotated.py: _Loader.exec_module": "Python's import calls it",
    "fencepost/broker/security/sasl/jwks.py: _NoRedirects.redirect_request": "urllib calls it for each redirect",
    "fencepost/console/broker_http.py: _NoRedirects.redirect_request": "urllib calls it for each redirect",
    "fencepost/testing/clock.py: TurnableLoop._accept_connection2": "overrides a method that asyncio calls",
    "scripts/site_pages.py: on_config": "MkDocs calls it before it reads the pages",
    "scripts/site_pages.py: on_page_markdown": "MkDocs calls it for each page",
}
"""Definitions whose callers are in a library or in CPython, and which."""

PLAIN_DECORATORS = {
    "abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod", "contextmanager", "dataclass",
    "deleter", "final", "lru_cache", "overload", "override", "property", "runtime_checkable", "setter", "staticmethod",
    "total_ordering", "unique", "wraps",
}  # fmt: skip
"""Those that register nothing. Others hand the function on: to click, to the table of APIs, to the console."""

WORD = re.compile(r"[A-Za-z_]\w*")
TEXTS = {".md", ".toml", ".yml", ".yaml", ".jinja", ".html", ".py", ".js", ""}


# Measured


def function_lines(tree: ast.Module) -> dict[str, int]:
    """The lines of each function by qualified name, its decorators left out."""
    return {
        name: (node.end_lineno or node.lineno) - node.lineno + 1
        for name, node in definitions(tree, with_nested=True)
        if is_function(node)
    }


def parameter_counts(tree: ast.Module) -> dict[str, int]:
    """The named parameters of each function by qualified name, self and cls left out."""
    counts = {}
    for name, node in definitions(tree, with_nested=True):
        if is_function(node):
            named = [*node.args.posonlyargs, *node.args.args]
            has_self = bool(named) and named[0].arg in ("self", "cls")
            counts[name] = len(named) + len(node.args.kwonlyargs) - has_self
    return counts


def ratchet(found: Mapping[str, int], listed: Mapping[str, int], limit: int) -> list[str]:
    """What has to be done so that the list holds exactly what is above the limit."""
    problems = []
    for name, size in sorted(found.items()):
        if size > limit and name not in listed:
            problems.append(f"{name} has {size}, the limit is {limit}: make it smaller (the list takes no new rows)")
        elif size > limit and size > listed[name]:
            problems.append(f"{name} has grown from {listed[name]} to {size}: make it smaller")
        elif size > limit and size < listed[name]:
            problems.append(f"{name} has {size}: write {size} in place of {listed[name]}")
        elif name in listed and size <= limit:
            problems.append(f"{name} has {size}, the limit is {limit}: remove its row")
    for name in sorted(listed.keys() - found.keys()):
        last = re.split(r"[ /]", name)[-1]
        moved = sorted(other for other in found if re.split(r"[ /]", other)[-1] == last and found[other] > limit)
        problems.append(f"{name} is gone: " + (f"it may be {' or '.join(moved)} now" if moved else "remove its row"))
    return problems


def used_words(node: ast.AST) -> Iterator[str]:
    """The names that code reads, imports or passes, and the words of its strings, docstrings left out."""
    docstrings = set()
    for part in ast.walk(node):
        match part:
            case ast.Expr(value=ast.Constant() as constant):
                docstrings.add(constant)
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.keyword(arg=str() as name):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Constant(value=str() as text) if part not in docstrings:
                yield from WORD.findall(text)


def is_handed_on(node: ast.AST) -> bool:
    """Whether a decorator keeps the definition, so that its name is not needed."""
    for decorator in getattr(node, "decorator_list", []):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) not in PLAIN_DECORATORS:
            return True
    return False


def unused(trees: Mapping[str, ast.Module], words_elsewhere: set[str]) -> list[str]:
    """The definitions of these files, by path and qualified name, that nothing names outside of themselves."""
    counts: dict[str, int] = {}
    for tree in trees.values():
        for word in used_words(tree):
            counts[word] = counts.get(word, 0) + 1
    found = []
    for path, tree in trees.items():
        for qualified, node in definitions(tree):
            name = qualified.rpartition(".")[2]
            if name in words_elsewhere or re.fullmatch(r"__\w+__", name) or is_handed_on(node):
                continue
            if counts.get(name, 0) == 0 or counts[name] == sum(word == name for word in used_words(node)):
                found.append(f"{path}: {qualified}")
    return sorted(found)


def words_of_tests_and_pages() -> set[str]:
    roots = [ROOT / name for name in ("tests", "docs", "examples", ".github", "scripts")]
    files: Iterable[Path] = [*(path for root in roots for path in root.rglob("*")), *ROOT.glob("*.*")]
    product = set(product_files())
    own = Path(__file__).resolve()
    words: set[str] = set()
    for path in files:
        if path.suffix in TEXTS and path.is_file() and path not in product and path != own:
            words.update(WORD.findall(path.read_text(encoding="utf-8", errors="replace")))
    return words


# The house as it is


def require_none(problems: Iterable[str]) -> None:
    lines = sorted(problems)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def by_place(measured: dict[Path, dict[str, int]]) -> dict[str, int]:
    return {f"{path_of(path)}: {name}": size for path, sizes in measured.items() for name, size in sizes.items()}


def test_functions_have_at_most_60_lines() -> None:
    found = by_place({path: function_lines(tree_of(path)) for path in product_files()})
    require_none(ratchet(found, LONG_FUNCTIONS, LONGEST_FUNCTION))


def test_functions_have_at_most_8_parameters() -> None:
    found = by_place({path: parameter_counts(tree_of(path)) for path in product_files()})
    require_none(ratchet(found, MANY_PARAMETERS, MOST_PARAMETERS))


def test_files_have_at_most_500_lines() -> None:
    lines = {path_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in product_files()}
    require_none(f"{path} needs no exception as a table" for path in TABLES if lines.get(path, 0) <= LONGEST_FILE)
    others = {path: count for path, count in lines.items() if path not in TABLES}
    require_none(ratchet(others, LONG_FILES, LONGEST_FILE))


def test_every_definition_is_used() -> None:
    found = set(unused({path_of(path): tree_of(path) for path in product_files()}, words_of_tests_and_pages()))
    listed = CALLED_BY_LIBRARIES.keys()
    require_none(f"{name} is unused: delete it (or add what library calls it)" for name in found - listed)
    require_none(f"{name} is used, moved or gone: rename or remove its row" for name in listed - found)


# Planted violations


def test_a_long_function_is_found_within_a_class_and_within_a_function() -> None:
    body = "\n        ".join(["x = 1"] * 3)
    tree = ast.parse(f"class A:\n    @property\n    def f(self):\n        {body}\n        def g(): pass\n")
    assert function_lines(tree) == {"A.f": 5, "A.f.g": 1}


def test_parameters_are_counted_without_self_and_without_the_collecting_ones() -> None:
    tree = ast.parse(
        "class A:\n    def f(self, a, /, b, *, c=1, **rest): ...\ndef g(*, a): ...\nasync def h(a, *b): ..."
    )
    assert parameter_counts(tree) == {"A.f": 3, "g": 1, "h": 1}


def test_a_size_above_the_limit_has_to_stand_in_the_list_with_its_number() -> None:
    listed = {"a.py": 70, "b.py": 70, "c.py": 70, "d.py": 70}
    assert not ratchet({"a.py": 70, "b.py": 70, "c.py": 70, "d.py": 70, "e.py": 60}, listed, 60)
    assert ratchet({"a.py": 71, "b.py": 69, "c.py": 60, "new/d.py": 70, "e.py": 61}, listed, 60) == [
        "a.py has grown from 70 to 71: make it smaller",
        "b.py has 69: write 69 in place of 70",
        "c.py has 60, the limit is 60: remove its row",
        "e.py has 61, the limit is 60: make it smaller (the list takes no new rows)",
        "new/d.py has 70, the limit is 60: make it smaller (the list takes no new rows)",
        "d.py is gone: it may be new/d.py now",
    ]
    assert ratchet({}, {"a.py: A.f": 70}, 60) == ["a.py: A.f is gone: remove its row"]
    assert "a.py: A.f is gone: it may be b.py: A.f now" in ratchet({"b.py: A.f": 70}, {"a.py: A.f": 70}, 60)


def test_a_definition_that_only_names_itself_is_unused() -> None:
    source = """
LIMIT = 1
USED = 2
def recursive(): return recursive()
def called(): return USED
def named_in_a_test(): ...
def named_in_a_string(): "named_only_in_a_docstring"
def named_only_in_a_docstring(): ...
@command("x")
def handed_on(): ...
@contextmanager
def not_entered(): yield
class Kept:
    def __init__(self): called()
    def method(self): ...
    @property
    def read(self): ...
"""
    user = 'from a import Kept\nprint(Kept().read, "named_in_a_string")'
    assert unused({"a.py": ast.parse(source), "b.py": ast.parse(user)}, {"named_in_a_test"}) == [
        "a.py: Kept.method",
        "a.py: LIMIT",
        "a.py: named_only_in_a_docstring",
        "a.py: not_entered",
        "a.py: recursive",
    ]
