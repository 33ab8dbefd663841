"""All decisions of these tests are watched: none may change its shard."""

from __future__ import annotations

import pytest

from tests.support.pure_decisions import watch_decisions


@pytest.fixture(autouse=True)
def decisions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watch_decisions(monkeypatch)
