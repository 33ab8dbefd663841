"""Which packages a test file needs is found by following imports, without importing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checking.imports import Imports, all_imports, imported, is_missing


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a, b.c\n", {"a", "b.c"}),
        ("from a import b\n", {"a"}),
        ("from tests.a import (\n    b,\n    c as d,\n)\n", {"tests.a", "tests.a.b", "tests.a.c"}),
        ("def f():\n    import a\nif TYPE_CHECKING:\n    import b\n", set()),
    ],
)
def test_imports_at_the_top_of_a_module_are_found(source: str, names: set[str]) -> None:
    assert set(imported(source)) == names


def test_imports_in_functions_are_found_if_they_are_asked_for() -> None:
    assert all_imports("import a.b\ndef f():\n    from c import d\n") == {"a.b", "c"}
    assert all_imports("def f(:\n") == set()


def test_missing_packages_are_found_through_our_modules_and_conftest(tmp_path: Path) -> None:
    write(tmp_path, "tests/room/test_it.py", "from tests.support import helper\n")
    write(tmp_path, "tests/support/helper.py", "import spark.sql\nfrom fencepost import a\n")
    write(tmp_path, "fencepost/a.py", "import here\nfrom fencepost import a\n")
    write(tmp_path, "tests/conftest.py", "from driver import x\n")
    write(tmp_path, "tests/room/test_text.py", 'TEXT = """\nimport spark\n"""\n')
    imports = Imports(tmp_path, lambda name: name.partition(".")[0] in {"spark", "driver"})
    assert imports.missing("tests/room/test_it.py") == {"spark", "driver"}
    assert imports.missing("tests/room/test_text.py") == {"driver"}


def test_our_own_modules_and_those_of_python_are_never_missing() -> None:
    assert [is_missing(name) for name in ("fencepost.gone", "tests", "asyncio", "pytest", "no_such_package.x")] == [
        False,
        False,
        False,
        False,
        True,
    ]
