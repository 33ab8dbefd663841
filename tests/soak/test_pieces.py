"""A soak in pieces: what a piece leaves for the next one, and which directories are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.soak.pieces import FILE, NEEDED, Pieces, PiecesError, begin_piece, load_pieces
from fencepost.soak.plan import Plan

HISTORY = b'{"op":"send"}\n'
FINAL_READ = b'{"op":"final_read"}\n'


@pytest.fixture
def pieces() -> Pieces:
    pieces = Pieces.none_yet(Plan(["confluent"], rate=10.0, seed=3, machine_count=3))
    pieces.count, pieces.history_bytes = 1, len(HISTORY)
    pieces.lives = {"confluent-producer-1": 4}
    return pieces


@pytest.fixture
def directory(tmp_path: Path, pieces: Pieces) -> Path:
    """That of a soak whose first piece has ended."""
    for name in NEEDED[1:]:
        (tmp_path / name).mkdir()
    (tmp_path / NEEDED[0]).write_bytes(HISTORY + FINAL_READ)
    pieces.save(tmp_path)
    return tmp_path


def refused(directory: Path) -> str:
    with pytest.raises(PiecesError) as caught:
        load_pieces(directory)
    return str(caught.value).replace(str(directory), "DIR")


def test_the_next_piece_finds_what_the_last_one_has_saved(directory: Path, pieces: Pieces) -> None:
    assert load_pieces(directory) == pieces


def test_a_piece_goes_on_with_the_history_before_the_final_read(directory: Path, pieces: Pieces) -> None:
    begin_piece(directory, pieces)
    assert (directory / "history.jsonl").read_bytes() == HISTORY


def test_a_piece_that_has_not_ended_leaves_nothing_to_go_on_with(directory: Path, pieces: Pieces) -> None:
    begin_piece(directory, pieces)
    assert refused(directory) == (
        "DIR has a soak that did not come to its end, or is not of machines: it has no soak.json"
    )


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("of something else")
    assert refused(tmp_path) == "DIR has no soak to go on with: there is no soak.json in it"
    assert refused(tmp_path / "absent") == "DIR has no soak to go on with: there is no soak.json in it"


@pytest.mark.parametrize("name", NEEDED)
def test_a_directory_that_lacks_a_part_is_refused(directory: Path, name: str) -> None:
    (directory / name).rename(directory / "elsewhere")
    assert refused(directory) == f"DIR is not complete: it has no {name}"


def test_a_history_that_was_cut_is_refused(directory: Path) -> None:
    (directory / "history.jsonl").write_bytes(HISTORY[:5])
    assert refused(directory) == "DIR/history.jsonl is shorter than the pieces before have left it"


@pytest.mark.parametrize("content", ["[]", '{"format": 99}', '{"format": 1, "kinds": []}', '{"format": 1, "odd": 2}'])
def test_what_another_version_has_saved_is_refused(directory: Path, content: str) -> None:
    (directory / FILE).write_text(content)
    assert refused(directory) == "DIR/soak.json is not of this version of fencepost soak"


def test_what_cannot_be_read_is_refused(directory: Path) -> None:
    (directory / FILE).write_bytes(b"{\xff")
    assert refused(directory).startswith("DIR/soak.json cannot be read: ")


def run(directory: Path, *options: str) -> tuple[int, str]:
    arguments = ["--minutes", "1", "--continue", "--directory", str(directory), *options]
    result = CliRunner().invoke(fencepost, ["soak", *arguments])
    return result.exit_code, result.output.replace("\n", " ")


def test_the_command_refuses_what_cannot_be_gone_on_with_in_one_sentence(tmp_path: Path, directory: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert run(other) == (2, f"{other} has no soak to go on with: there is no soak.json in it ")
    assert run(directory, "--machines", "2") == (2, f"{directory} has a soak of 3 machines ")
    assert json.loads((directory / FILE).read_text())["count"] == 1


@pytest.mark.parametrize("option", [("--rate", "3"), ("--seed", "1"), ("--clients", "confluent"), ("--two-phase",)])
def test_what_the_pieces_before_have_decided_cannot_be_given_again(directory: Path, option: tuple[str, ...]) -> None:
    code, output = run(directory, *option)
    assert code == 2
    assert f"{option[0]} cannot be given with --continue" in output


def test_a_directory_has_to_be_named() -> None:
    result = CliRunner().invoke(fencepost, ["soak", "--minutes", "1", "--continue"])
    assert result.exit_code == 2
    assert "--continue needs the --directory of the soak to go on with" in result.output
