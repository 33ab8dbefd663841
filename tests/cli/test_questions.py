"""One word for yes: every change that asks takes it, and without it and a terminal nothing is changed."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fencepost.cli import questions
from fencepost.cli.questions import ask, yes_option
from tests.support.command_tree import commands


@click.command()
@yes_option("This is for good. Continue?", "--force")
def change() -> None:
    """Change something."""
    click.echo("changed")


@pytest.mark.parametrize("option", ["-y", "--yes", "--force"])
def test_each_word_answers_beforehand(option: str) -> None:
    assert CliRunner().invoke(change, [option]).stdout == "changed\n"


def test_without_a_terminal_the_change_is_refused_in_a_sentence_and_the_input_is_left_alone() -> None:
    result = CliRunner().invoke(change, [], input="y\n")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.endswith(
        "Error: This is for good. Continue? There is no terminal to answer at; --yes answers beforehand\n"
    )


@pytest.mark.parametrize(
    ("answer", "exit_code", "output"),
    [("y\n", 0, "changed\n"), ("n\n", 1, ""), ("", 1, ""), ("what\nYES\n", 0, "changed\n")],
)
def test_at_a_terminal_the_answer_counts_and_the_question_stays_out_of_the_output(
    monkeypatch: pytest.MonkeyPatch, answer: str, exit_code: int, output: str
) -> None:
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    result = CliRunner().invoke(change, [], input=answer)
    assert (result.exit_code, result.stdout) == (exit_code, output)
    assert result.stderr.startswith("This is for good. Continue? [y/N]: ")


def test_a_closed_standard_input_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(click.UsageError):
        ask("Continue?")


# The whole tree of commands


ASKING = {
    name: option for name, command in commands() for option in command.params if {"--yes", "-y"} & set(option.opts)
}


@pytest.mark.parametrize("name", ASKING)
def test_what_answers_a_question_has_the_same_names_and_words_everywhere(name: str) -> None:
    option = ASKING[name]
    assert isinstance(option, click.Option)
    assert option.opts[:2] == ["-y", "--yes"], "use yes_option or sure_option of fencepost.cli.questions"
    assert set(option.opts[2:]) <= {"--force"}
    assert option.help == questions.HELP


def test_no_command_asks_by_the_questions_of_click() -> None:
    folder = Path(questions.__file__).parent
    asking = [path.name for path in folder.glob("*.py") if re.search(r"click\.confirm", path.read_text("utf-8"))]
    assert asking == []
