"""Each command says how it works with other brokers."""

from __future__ import annotations

from fencepost.cli.commands import fencepost
from fencepost.cli.other_brokers import OTHER_BROKERS, SAME, other_brokers_section
from tests.support.command_tree import commands


def test_each_command_has_a_row() -> None:
    names = {name for name, _ in commands(fencepost)}
    assert set(OTHER_BROKERS) == names, "describe a new command in fencepost/cli/other_brokers.py"


def test_what_does_not_work_or_not_wholly_has_its_reason() -> None:
    for name, there in OTHER_BROKERS.items():
        assert there is None or there == SAME or there.limits, name


def test_the_page_names_each_command_that_asks_a_broker() -> None:
    page = other_brokers_section()
    for name, there in OTHER_BROKERS.items():
        assert there is None or f"`{name}`" in page
    assert "| `cluster move` | no | " in page
