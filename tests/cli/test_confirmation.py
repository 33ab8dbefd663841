"""Questions before a change of several things."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from fencepost.cli import questions
from fencepost.cli.confirmation import asking_options, check_choice, check_count, confirm, counted, preview


@click.command()
@asking_options
@click.option("--of-everything")
def change(is_sure: bool, expect: int | None, dry_run: bool, of_everything: str | None) -> None:
    check_count(3, expect, "topics")
    if not dry_run:
        preview(["topic"], [{"topic": "orders"}])
        confirm("Delete", 3, is_sure=is_sure, of_everything=of_everything, expected=expect)
        click.echo("done")


@pytest.fixture(autouse=True)
def _at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "is_answerable", lambda: True)


def run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(change, arguments, input=answer)


def test_the_preview_and_the_question_are_no_output() -> None:
    result = run(answer="y\n")
    assert (result.exit_code, result.stdout.split()[-1]) == (0, "done")
    assert "orders" in result.stderr
    assert "orders" not in result.stdout


def test_a_no_and_a_closed_input_change_nothing() -> None:
    for answer in ("n\n", ""):
        result = run(answer=answer)
        assert result.exit_code == 1
        assert "done" not in result.stdout


def test_yes_answers() -> None:
    assert run("--yes").exit_code == 0
    assert "done" not in run("--dry-run", "--yes").stdout


def test_another_number_than_expected_is_refused() -> None:
    assert run("--yes", "--expect", "3").exit_code == 0
    refused = run("--yes", "--expect", "2")
    assert refused.exit_code == 1
    assert "it is 3 topics, and --expect says 2" in refused.stderr


def test_a_pattern_of_everything_needs_the_number() -> None:
    refused = run("--yes", "--of-everything", "*")
    assert refused.exit_code == 1
    assert "add --expect 3 if you mean all 3" in refused.stderr
    assert run("--yes", "--of-everything", "*", "--expect", "3").exit_code == 0
    assert run("--of-everything", "*", answer="3\n").exit_code == 0
    for answer in ("y\n", "2\n", ""):
        assert run("--of-everything", "*", answer=answer).exit_code == 1


def test_a_name_or_a_pattern_is_needed() -> None:
    check_choice(["a"], [], "topics", is_asked=True)
    check_choice([], ["a*"], "topics")
    with pytest.raises(click.UsageError, match="name the topics, or choose them with --pattern"):
        check_choice([], [], "topics")


def test_one_is_no_plural() -> None:
    assert [counted(count, "topic") for count in (0, 1, 5_000)] == ["0 topics", "1 topic", "5,000 topics"]


def test_without_a_terminal_nothing_is_asked_and_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "is_answerable", lambda: False)
    check_choice(["a"], [], "topics")
    with pytest.raises(click.UsageError, match="no terminal to answer at; --yes answers beforehand"):
        check_choice(["a"], [], "topics", is_asked=True)
    for arguments, option in (((), "--yes"), (("--of-everything", "*"), "--expect")):
        refused = run(*arguments, answer="y\n")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"no terminal to answer at; {option} answers beforehand" in " ".join(refused.stderr.split())
