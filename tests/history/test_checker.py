"""The check as a command and as a report: exit codes, counts, and what the documentation shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.history.checker import check_history

ROOT = Path(__file__).resolve().parents[2]


def line(operation: str, outcome: str, **fields: Any) -> bytes:
    return json.dumps({"time_ms": 1, "client": "c", "operation": operation, "type": outcome, **fields}).encode() + b"\n"


def send(value: str, call: int) -> bytes:
    return line("send", "invoke", call=call, topic="t", partition=0, value=value)


FINAL_READ = [
    line("final_read", "invoke", call=9, ranges=[["t", 0, 0, 1]]),
    line("final_read", "ok", call=9, records=[]),
]
LOST = [send("a", 1), line("send", "ok", call=1, offset=0), *FINAL_READ]


def main(arguments: list[str]) -> int:
    """Runs `fencepost history check` in this process; what it prints is captured as any other print."""
    done = CliRunner().invoke(fencepost, ["history", "check", *arguments])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.exit_code


def write(path: Path, lines: list[bytes]) -> str:
    path.write_bytes(b"".join(lines))
    return str(path)


def test_the_command_runs_in_a_shell_and_its_exit_code_reports_anomalies(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", LOST)
    ended = subprocess.run(
        [sys.executable, "-m", "fencepost", "history", "check", path], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "1  lost write" in ended.stdout
    assert "line 4        the final read of t-0 from offset 0 to 1 lacks" in ended.stdout


def test_a_history_without_anomalies_gives_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "history.jsonl", LOST[:2])]) == 0
    assert "No anomaly found." in capsys.readouterr().out


def test_the_report_is_available_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "history.jsonl", LOST), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert report["anomaly_counts"] == {"lost write": 1}
    assert [proof["line"] for proof in report["anomalies"][0]["proofs"]] == [1, 2, 4]


def test_all_anomalies_are_counted_and_only_some_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sends = [one for call in range(5) for one in (send(f"v{call}", call), line("send", "ok", call=call, offset=call))]
    assert main([write(tmp_path / "history.jsonl", [*sends, *FINAL_READ]), "--limit", "2"]) == 1
    assert "5  lost write (the first 2 shown)" in capsys.readouterr().out


def test_a_malformed_line_is_named_with_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "history.jsonl", [send("a", 1), b"{nonsense}\n"])]) == 2
    assert "history.jsonl: line 2: not a JSON object" in capsys.readouterr().err


def test_a_missing_file_gives_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "history.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_example_of_the_documentation_is_a_history() -> None:
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    example = page.split("```json\n")[1].split("```")[0]
    report = check_history([one.encode() for one in example.splitlines(keepends=True)])
    assert report.is_valid
    assert report.counts["transactions_of_unknown_outcome"] == 1


def test_the_documentation_shows_the_report_as_the_command_prints_it() -> None:
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    history = page.split("```json\n")[2].split("```")[0]
    shown = page.split("```text\n")[-1].split("```")[0]
    assert check_history([one.encode() for one in history.splitlines(keepends=True)]).text() == shown
