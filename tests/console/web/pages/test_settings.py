"""Changes of a broker's settings, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.console.reading.settings import Setting
from fencepost.console.web.pages import settings
from fencepost.console.web.pages.settings import alter_broker_setting


async def test_the_value_of_a_secret_is_in_no_text_of_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are shown, and written to the audit log."""
    sent = []

    async def read_settings(*_: Any) -> list[Setting]:
        password = "ssl.keystore.password"
        return [Setting(password, None, "5", is_default=False, is_read_only=False, is_secret=True, documentation="")]

    async def alter_settings(*given: Any, **_: Any) -> None:
        sent.append(given[3])

    monkeypatch.setattr(settings, "read_settings", read_settings)
    monkeypatch.setattr(settings, "alter_settings", alter_settings)
    form = {"broker": "1", "setting": "ssl.keystore.password", "value": "hunter2"}
    change = await alter_broker_setting(SimpleNamespace(cluster=None), form)  # type: ignore[arg-type]
    said = await change.perform()
    assert said == "ssl.keystore.password was set to a new secret."
    assert "hunter2" not in repr((change, said))
    assert sent == [[("ssl.keystore.password", "hunter2")]] * 2  # tried, and made
