"""Tests lie at the path of their module, so that a change of a module shows which tests to run first."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXCEPTIONS = ROOT / "tests" / "modules_without_tests.txt"
MOST_EXCEPTIONS = 193
"""May only become less."""

DEFINITION = re.compile(r"^ *(async def|def|class) \w+[(:\[]", re.MULTILINE)
"""A module without any (constants, or an `__init__` that only imports) needs no tests."""
TEST = re.compile(r"^ *(async )?def test_\w+\(", re.MULTILINE)


def path_of_tests(module: str) -> str:
    """`broker/log/recovery` has `tests/broker/log/test_recovery.py`, `soak/__main__` has `tests/soak/test_main.py`."""
    folder, _, name = module.rpartition("/")
    return f"tests/{folder}/test_{name.strip('_')}.py".replace("//", "/")


def modules_without_tests(root: Path) -> set[str]:
    package = root / "fencepost"
    sources = {path.relative_to(package).with_suffix("").as_posix(): path for path in package.rglob("*.py")}
    return {
        module
        for module, path in sources.items()
        if DEFINITION.search(path.read_text(encoding="utf-8")) and not has_tests(root / path_of_tests(module))
    }


def has_tests(path: Path) -> bool:
    return path.is_file() and TEST.search(path.read_text(encoding="utf-8")) is not None


def exceptions_in(text: str) -> list[str]:
    """A line is a folder, a colon, and modules in it."""
    found = []
    for line in text.splitlines():
        folder, _, names = line.partition(":")
        found += [f"{folder}/{name}".removeprefix("./") for name in names.split()]
    return found


def complaints(root: Path, exceptions: list[str]) -> list[str]:
    without = modules_without_tests(root)
    return sorted(
        [f"fencepost/{module}.py needs tests in {path_of_tests(module)}" for module in without - set(exceptions)]
        + [
            f"{module} has tests in {path_of_tests(module)}: remove it from {EXCEPTIONS.name}"
            if (root / "fencepost" / f"{module}.py").is_file()
            else f"{module} is no module any more: remove it from {EXCEPTIONS.name}"
            for module in set(exceptions) - without
        ]
        + [f"{module} stands twice in {EXCEPTIONS.name}" for module, count in Counter(exceptions).items() if count > 1]
    )


def test_each_module_has_tests_at_its_path_or_is_a_known_exception() -> None:
    assert complaints(ROOT, exceptions_in(EXCEPTIONS.read_text(encoding="utf-8"))) == []


def test_exceptions_do_not_become_more() -> None:
    assert len(exceptions_in(EXCEPTIONS.read_text(encoding="utf-8"))) <= MOST_EXCEPTIONS


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_a_module_without_tests_at_its_path_is_named_with_the_path_that_is_missing(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        fencepost__log__tail="def scan() -> int:\n    return 1\n",
        fencepost__log__sizes="MOST = 1\n",
        tests__log__test_tails="def test_scan() -> None:\n    assert True\n",
    )
    assert complaints(root, []) == ["fencepost/log/tail.py needs tests in tests/log/test_tail.py"]


def test_a_file_without_any_test_in_it_does_not_count(tmp_path: Path) -> None:
    root = tree(tmp_path, fencepost__tail="class Tail:\n    length = 1\n", tests__test_tail="import fencepost.tail\n")
    assert complaints(root, []) == ["fencepost/tail.py needs tests in tests/test_tail.py"]


def test_an_exception_that_has_tests_by_now_or_is_gone_must_be_removed(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        fencepost__log__tail="async def scan() -> int:\n    return 1\n",
        tests__log__test_tail="async def test_scan() -> None:\n    assert True\n",
    )
    assert complaints(root, exceptions_in("log: tail\n.: gone gone\n")) == [
        f"gone is no module any more: remove it from {EXCEPTIONS.name}",
        f"gone stands twice in {EXCEPTIONS.name}",
        f"log/tail has tests in tests/log/test_tail.py: remove it from {EXCEPTIONS.name}",
    ]
