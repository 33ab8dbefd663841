"""Quotas on the command line: for whom, and how much, is checked before a broker is asked."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost

NOBODY = ("--bootstrap", "127.0.0.1:1")
RATE = ("--producer-byte-rate", "1024")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("set", *RATE), "say for whom: --user NAME"),
        (("set", "--user", "alice"), "say how much: --producer-byte-rate"),
        (("set", "--user", "alice", "--user-default", *RATE), "either --user or --user-default"),
        (("set", "--ip", "10.0.0.1", "--user", "alice", *RATE), "--ip goes with no --user and no --client-id"),
        (("set", "--user", "alice", "--producer-byte-rate", "0"), "0.0 is not in the range x>0"),
        (("set", "--user", "alice", "--producer-byte-rate", "many"), "'many' is not a valid float"),
        (("remove",), "say for whom"),
        (("remove", "--user", "alice", "--quota", "speed"), "'speed' is not one of"),
        (("list", "--client-id", "a", "--client-id-default"), "either --client-id or --client-id-default"),
    ],
)
def test_what_names_nobody_or_nothing_is_refused(arguments: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(fencepost, ["quotas", *arguments, *NOBODY])
    assert result.exit_code == 2
    assert expected in result.output
