"""The resolver that belongs to settings."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fencepost.check_back.resolvers import resolver_for
from fencepost.check_back.settings import ResolverSettings

NO_RECORDS: Any = None


def test_a_type_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="resolver orders: type: expected http, sql or record; got 'ftp'"):
        resolver_for(ResolverSettings("orders", ("*",), "ftp"), NO_RECORDS)


def test_each_type_has_its_resolver() -> None:
    http = resolver_for(ResolverSettings("a", ("*",), "http", {"url": "http://localhost:1/{token}"}), NO_RECORDS)
    record = resolver_for(ResolverSettings("b", ("*",), "record", {"topic": "t"}), NO_RECORDS)
    assert (type(http).__name__, type(record).__name__) == ("HttpResolver", "RecordResolver")


def test_the_library_of_one_type_is_not_needed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert resolver_for(ResolverSettings("b", ("*",), "record", {"topic": "t"}), NO_RECORDS)
