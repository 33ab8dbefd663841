"""Secrets in settings: read from where they stand, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.config import SETTINGS, Settings


def test_a_secret_is_read_from_where_it_stands_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    monkeypatch.setenv("WORD", "geheim")
    secret = SETTINGS["ssl.key.password"].parse(f"${{file:{tmp_path}/password}} ${{env:WORD}} $x")
    assert secret.reveal() == "open sesame geheim $x"
    settings = Settings(ssl_key_password=SETTINGS["ssl.key.password"].parse("open sesame"))
    assert "sesame" not in repr(settings)
    assert settings.text("ssl.key.password") is None
