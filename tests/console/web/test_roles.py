"""Every change needs a role."""

from __future__ import annotations

from fencepost.console.roles import Role
from fencepost.console.web.changes import CHANGES
from fencepost.console.web.pages import PAGES
from fencepost.console.web.roles import NEEDED, needed_role


def test_each_declared_change_has_a_row_and_each_row_a_change() -> None:
    assert PAGES
    assert set(NEEDED) == set(CHANGES)


def test_no_change_is_for_viewers() -> None:
    assert Role.VIEWER not in NEEDED.values()


def test_a_change_without_a_row_is_for_admins() -> None:
    assert needed_role("something-new") is Role.ADMIN
