"""What clients have chosen cannot steer a terminal or fake a line: in tables and errors."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.printable import printable
from fencepost.cli.connection import refusal
from fencepost.cli.output import print_rows

EVIL = "g\x1b]0;OWNED\x07\x1b[31mRED\nFAKE ROW\tok\u202egnirts\x85"
HARMLESS = "g\\x1b]0;OWNED\\x07\\x1b[31mRED\\nFAKE ROW\\tok\\u202egnirts\\x85"


@pytest.mark.parametrize("text", ["", "orders", "Straße", "注文", "a b", "emoji 🙂"])
def test_letters_of_all_languages_stay(text: str) -> None:
    assert printable(text) == text


def test_what_steers_a_terminal_is_written_as_an_escape() -> None:
    assert printable(EVIL) == HARMLESS


@pytest.mark.parametrize("value", [EVIL, [EVIL]])
def test_tables_have_escapes(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["group"], [{"group": value}], as_json=False)
    assert capsys.readouterr().out == f"group\n{HARMLESS}\n"


def test_what_a_broker_says_about_an_error_has_escapes() -> None:
    assert refusal(KeyError, EVIL).endswith(HARMLESS)
