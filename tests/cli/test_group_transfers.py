"""`fencepost groups export` and `import`: there and back, and nothing at all if something speaks against it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from click.testing import CliRunner, Result

from fencepost.cli import questions
from fencepost.cli.commands import fencepost as command

ODD = 'od\u202ed*^ \U0001f5c4,"x"'


def run(fencepost: Any, *arguments: str, answer: str = "") -> Result:
    options = {"FENCEPOST_BOOTSTRAP": fencepost.bootstrap_servers}
    return CliRunner().invoke(command, ["groups", *arguments], input=answer, env=options)


def committed(fencepost: Any, group: str) -> dict[int, int]:
    rows = json.loads(run(fencepost, "describe", group, "--json").stdout)
    return {row["partition"]: row["committed_offset"] for row in rows}


@pytest.fixture
def topic(fencepost: Any) -> str:
    name: str = fencepost.topic("transferred")
    producer = ck.Producer({"bootstrap.servers": fencepost.bootstrap_servers})
    for number in range(10):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def exported(fencepost: Any, topic: str, tmp_path: Path) -> Path:
    """A file with an odd group at 4; the group is at 8 by now."""
    assert run(fencepost, "reset-offsets", ODD, topic, "--to-offset", "4").exit_code == 0
    path = tmp_path / "groups.jsonl"
    result = run(fencepost, "export", ODD)
    assert (result.exit_code, result.stderr) == (0, "exported 1 offset of 1 group\n")
    path.write_text(result.stdout)
    assert run(fencepost, "reset-offsets", ODD, topic, "--to-offset", "8").exit_code == 0
    return path


def test_a_group_is_where_it_was_after_an_import(fencepost: Any, topic: str, exported: Path) -> None:
    shown = json.loads(run(fencepost, "import", str(exported), "--dry-run", "--json").stdout)
    assert shown == [{"group": ODD, "topic": topic, "partition": 0, "before": 8, "offset": 4, "moved_by": -4}]
    assert committed(fencepost, ODD) == {0: 8}, "a dry run sets nothing"
    assert json.loads(run(fencepost, "import", str(exported), "--yes", "--json").stdout) == shown
    assert committed(fencepost, ODD) == {0: 4}
    assert run(fencepost, "import", str(exported), "--to-group", "copy", "--yes").exit_code == 0
    assert committed(fencepost, "copy") == {0: 4}
    piped = run(fencepost, "import", "-", "--to-group", "piped", "--yes", answer=exported.read_text())
    assert (piped.exit_code, committed(fencepost, "piped")) == (0, {0: 4})


def test_the_question_comes_with_the_moves(fencepost: Any, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unasked = run(fencepost, "import", str(exported))
    assert unasked.exit_code == 2
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    assert run(fencepost, "import", str(exported), answer="n\n").exit_code == 1
    assert committed(fencepost, ODD) == {0: 8}
    asked = run(fencepost, "import", str(exported), answer="y\n")
    assert asked.exit_code == 0
    assert "This sets 1 offset of 1 group. Continue?" in asked.stderr
    assert "\u202e" not in asked.output
    assert committed(fencepost, ODD) == {0: 4}


def during_the_question(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    def answer(_question: str) -> None:
        change()

    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    monkeypatch.setattr(questions, "ask", answer)


def test_another_import_in_the_meantime_is_not_overwritten(
    fencepost: Any, topic: str, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_the_question(monkeypatch, lambda: run(fencepost, "reset-offsets", ODD, topic, "--to-offset", "6"))
    result = run(fencepost, "import", str(exported))
    assert result.exit_code == 1
    assert "nothing was set, since the preview is out of date" in result.stderr
    assert "was at 8 in" in result.stderr
    assert committed(fencepost, ODD) == {0: 6}


def test_a_group_in_use_is_left_alone(fencepost: Any, topic: str, exported: Path, tmp_path: Path) -> None:
    consumer = ck.Consumer({"bootstrap.servers": fencepost.bootstrap_servers, "group.id": "used", "client.id": "web-1"})
    consumer.subscribe([topic])
    try:
        deadline_s = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        refused = run(fencepost, "import", str(exported), "--to-group", "used", "--yes")
        assert refused.exit_code == 1
        assert "group 'used' is in use (Stable: web-1 at 127.0.0.1); stop its members first" in refused.stderr
    finally:
        consumer.close()


def test_one_reason_keeps_all_where_they_are(fencepost: Any, topic: str, exported: Path) -> None:
    damaged = exported.with_name("more")
    first, line, _ = exported.read_text().splitlines()
    beyond = json.dumps({**json.loads(line), "group": "second", "offset": 11})
    damaged.write_text(f'{first}\n{line}\n{beyond}\n{{"end": true, "groups": 2, "offsets": 2}}')
    refused = run(fencepost, "import", str(damaged), "--yes")
    assert f"{topic}-0 has the offsets 0 to 10, and 11 is none of them" in refused.stderr
    assert committed(fencepost, ODD) == {0: 8}
    assert run(fencepost, "import", str(damaged), "--yes", "--nearest").exit_code == 0
    assert (committed(fencepost, ODD), committed(fencepost, "second")) == ({0: 4}, {0: 10})


def test_the_groups_of_a_file_are_chosen(fencepost: Any, exported: Path) -> None:
    for options, message in (
        (("--group", "other"), "the file has no group 'other'; it has"),
        (("--pattern", "other*"), "the file has no offsets of these groups"),
    ):
        refused = run(fencepost, "import", str(exported), *options, "--yes")
        assert refused.exit_code == 1
        assert message in refused.stderr
    assert run(fencepost, "import", str(exported), "--group", ODD, "--yes").exit_code == 0


def test_a_csv_file_goes_there_and_back(fencepost: Any, topic: str, exported: Path) -> None:
    exported.write_text(run(fencepost, "export", ODD, "--csv").stdout)
    assert exported.read_text() == f"{topic},0,8\n"
    unnamed = run(fencepost, "import", str(exported), "--yes")
    assert (unnamed.exit_code, "say --to-group GROUP" in unnamed.stderr) == (2, True)
    assert run(fencepost, "import", str(exported), "--to-group", "from-csv", "--yes").exit_code == 0
    assert committed(fencepost, "from-csv") == {0: 8}
    exported.write_text(run(fencepost, "export", ODD, "from-csv", "--csv").stdout)
    assert len(exported.read_text().splitlines()) == 2
    assert run(fencepost, "import", str(exported), "--yes").exit_code == 0


def test_a_file_that_is_cut_and_groups_that_are_not_there_are_named(fencepost: Any, exported: Path) -> None:
    exported.write_text("".join(exported.read_text().splitlines(keepends=True)[:-1]))
    refused = run(fencepost, "import", str(exported), "--yes")
    assert (refused.exit_code, "line 2 is the last, and does not say so" in refused.stderr) == (1, True)
    for arguments, message in (
        (("nobody",), "there is no group 'nobody'"),
        (("--pattern", "nobody*"), "no group with committed offsets matches 'nobody*'"),
    ):
        result = run(fencepost, "export", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert message in result.stderr
    assert run(fencepost, "export").exit_code == 2
