"""Settings on the command line: a change that contradicts itself and a broker that is none are refused."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost

NOBODY = ("--bootstrap", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("topic", "orders", "--set", "a=1", "--delete", "a"), "--set and --delete both name a"),
        (("topic", "orders", "--set", "retention.ms"), "--set"),
        (("broker", "first"), "'first' is no broker id"),
        (("broker", "-1"), "No such option"),
        (("logger", "all"), "'all' is no broker id"),
        (("logger", "\u0663"), "is no broker id"),
        (("user", "alice"), "'user' is not one of"),
    ],
)
def test_wrong_words_are_refused_before_a_broker_is_asked(arguments: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(fencepost, ["configs", *arguments, *NOBODY])
    assert result.exit_code == 2
    assert expected in result.output
