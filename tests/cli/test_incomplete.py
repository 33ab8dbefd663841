"""A list that may lack something is printed, and the command fails: a script must not take it for all there is."""

from __future__ import annotations

import click
import pytest

from fencepost.cli.incomplete import print_or_fail

ROWS = [{"group": "g"}]


def test_a_whole_list_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_or_fail(["group"], ROWS, [], as_json=False, empty="no groups")
    print_or_fail(["group"], [], [], as_json=False, empty="no groups")
    assert capsys.readouterr().out.split() == ["group", "g", "no", "groups"]


def test_missing_parts_are_an_error_behind_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.ClickException, match=r"may not be complete: x-1 is offline; x-2 is offline\. "):
        print_or_fail(["group"], ROWS, ["x-1 is offline", "x-2 is offline"], as_json=False, empty="no groups")
    assert capsys.readouterr().out.split() == ["group", "g"]


def test_an_empty_list_that_may_lack_something_does_not_say_that_there_is_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(click.ClickException):
        print_or_fail(["group"], [], ["x-1 is offline"], as_json=False, empty="no groups")
    assert capsys.readouterr().out == ""
    with pytest.raises(click.ClickException):
        print_or_fail(["group"], [], ["x-1 is offline"], as_json=True, empty="no groups")
    assert capsys.readouterr().out == "[]\n"


def test_hidden_characters_of_a_reason_are_shown() -> None:
    with pytest.raises(click.ClickException) as caught:
        print_or_fail(["group"], [], ["topic \u202eevil\x1b[2J"], as_json=False, empty="")
    assert "\x1b" not in caught.value.message
    assert "\u202e" not in caught.value.message
