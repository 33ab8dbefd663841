"""Modules whose functions lose their annotations when they are imported, each time in a new interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = """
from __future__ import annotations

from dataclasses import dataclass

from fencepost.protocol.lazy_import import lazy_module

missing = lazy_module("a_module_that_is_missing")

def function(number: int) -> int: return number

class Outer:
    field: int
    class Inner:
        def method(self, number: int) -> int: return number
        @staticmethod
        def static(number: int) -> int: return number
        @classmethod
        def of_class(cls, number: int) -> int: return number
        @property
        def property(self) -> int: return 7

Outer.Inner.around = Outer

@dataclass(frozen=True)
class Pair:
    left: int
    right: int = 2
"""


def run(program: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_functions_lose_their_annotations_and_classes_keep_them(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(MODULE, encoding="utf-8")
    program = """
import sys, dataclasses, typing
import fencepost
fencepost.__path__.append(sys.argv[1])
from fencepost.broker.kernel.unannotated import import_unannotated
import_unannotated()
import_unannotated()
import fencepost.planted as planted

inner = planted.Outer.Inner()
functions = [planted.function, planted.Pair.__init__, type(inner).property.fget]
functions += [inner.method.__func__, inner.static, inner.of_class.__func__]
assert [one.__name__ for one in functions if one.__annotations__] == []
assert planted.Outer.__annotations__ == {"field": "int"}
assert [field.type for field in dataclasses.fields(planted.Pair)] == ["int", "int"]
assert planted.Pair(1) == planted.Pair(left=1, right=2) and repr(planted.Pair(1)) == "Pair(left=1, right=2)"
assert (planted.function(1), inner.method(2), inner.static(3), inner.of_class(4), inner.property) == (1, 2, 3, 4, 7)
assert typing.get_type_hints(planted.Pair) == {"left": int, "right": int}
finders = [finder for finder in sys.meta_path if getattr(finder, "__module__", None) == import_unannotated.__module__]
assert len(finders) == 1
"""
    run(program, tmp_path)


def test_other_packages_keep_their_annotations(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(MODULE, encoding="utf-8")
    program = """
import sys
sys.path.append(sys.argv[1])
from fencepost.broker.kernel.unannotated import import_unannotated
import_unannotated()
import other
assert other.function.__annotations__ == {"number": "int", "return": "int"}
assert other.Outer.Inner.method.__annotations__
"""
    run(program, tmp_path)


def test_finders_that_others_put_in_front_are_asked_first(tmp_path: Path) -> None:
    program = """
import sys
from importlib.abc import MetaPathFinder
seen = []
class Front(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        seen.append(name)
sys.meta_path.insert(0, Front())
from fencepost.broker.kernel.unannotated import import_unannotated
import_unannotated()
import fencepost.broker.kernel.topic_partition
assert "fencepost.broker.kernel.topic_partition" in seen
"""
    run(program, tmp_path)


def test_a_module_of_the_package_that_is_missing_is_an_import_error(tmp_path: Path) -> None:
    program = """
from fencepost.broker.kernel.unannotated import import_unannotated
import_unannotated()
try:
    import fencepost.missing
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'fencepost.missing'", error
else:
    raise AssertionError("imported")
"""
    run(program, tmp_path)
