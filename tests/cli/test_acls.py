"""Rules on the command line: a rule without a resource or a principal is refused before a broker is asked."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost

NOBODY = ("--bootstrap", "127.0.0.1:1")
ALICE = ("--allow-principal", "User:alice")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("add", *ALICE), "name a resource: --topic"),
        (("add", "--topic", "orders"), "name a principal: --allow-principal or --deny-principal"),
        (("add", "--topic", "orders", *ALICE, "--operation", "Fly"), "'Fly' is not one of"),
        (("add", "--topic", "orders", *ALICE, "--idempotent"), "--producer"),
        (("add", "--topic", "orders", *ALICE, "--resource-pattern-type", "any"), "'any' is not one of"),
    ],
)
def test_a_rule_that_says_too_little_is_refused(arguments: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(fencepost, ["acls", *arguments, *NOBODY])
    assert result.exit_code == 2
    assert expected in result.output
