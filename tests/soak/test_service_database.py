"""The database of a soak's services: its parts and addresses. tests/two_phase runs its faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fencepost.soak.service_database import ServiceDatabase


def test_services_go_through_the_proxy_by_two_ways(tmp_path: Path) -> None:
    database = ServiceDatabase(tmp_path, ["clerk"])
    assert database.url("clerk") != database.pooled_url("clerk")
    for url in (database.url("clerk"), database.pooled_url("clerk")):
        assert url.startswith("postgresql://clerk@127.0.0.1:")
        assert "sslmode=disable" in url


def test_a_pooler_that_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert not ServiceDatabase(tmp_path).has_pooler
    assert not ServiceDatabase(tmp_path).can_be_full
