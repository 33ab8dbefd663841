"""Lazy modules: imported at the first use of an attribute; and all lazy modules can be imported."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
import textwrap
from pathlib import Path

import pytest

import fencepost.broker
import fencepost.protocol
from fencepost.protocol.lazy_import import LAZY_MODULES, lazy_module


def import_all() -> None:
    for package in (fencepost.broker, fencepost.protocol):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def test_whatever_is_deferred_can_be_imported() -> None:
    import_all()
    assert {"cramjam", "shutil"} <= LAZY_MODULES
    for name in LAZY_MODULES:
        importlib.import_module(name)


def test_a_module_is_imported_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rarely_used.py").write_text(
        textwrap.dedent("""
            answer = 42
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = lazy_module("rarely_used")
    LAZY_MODULES.remove("rarely_used")
    assert "rarely_used" not in sys.modules
    assert module.answer == 42
    monkeypatch.delitem(sys.modules, "rarely_used")
    assert module.answer == 42, "it is not imported twice"


def test_known_attributes_of_a_module_do_not_import_it() -> None:
    module = lazy_module("not_there", answer=42)
    LAZY_MODULES.remove("not_there")
    assert module.answer == 42


def test_a_missing_attribute_of_a_deferred_module_is_an_error() -> None:
    module = lazy_module("shutil")
    assert module.rmtree is shutil.rmtree
    with pytest.raises(AttributeError, match="module 'shutil' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_deferred_module_that_is_missing_is_an_import_error() -> None:
    module = lazy_module("not_there")
    LAZY_MODULES.remove("not_there")
    with pytest.raises(ModuleNotFoundError):
        _ = module.anything
