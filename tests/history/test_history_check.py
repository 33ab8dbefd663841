"""The command, the file it reads and the writer of that file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.history.checker import check_history
from fencepost.history.reader import MalformedHistoryError
from fencepost.history.writer import HistoryWriter

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


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"[1]\n"], "line 1: not a JSON object"),
        ([b'{"time_ms":1}\n'], "line 1: the field 'client' is missing"),
        ([line("begin", "done")], "type must be invoke, ok, fail or unknown, not 'done'"),
        ([line("frobnicate", "ok")], "there is no operation 'frobnicate'"),
        ([line("frobnicate", "invoke", call=1)], "there is no operation 'frobnicate' that is invoked"),
        ([line("start", "ok", isolation_level="serializable")], "isolation_level must be one of"),
        ([line("send", "ok", call=1)], 'client "c" has no send under way with call 1'),
        ([line("send", "ok")], "the field 'call' is missing"),
        ([send("a", 1), send("b", 1)], "call 1 of"),
        ([send("a", 1), send("a", 2)], "the value 'a' was sent in line 1 already"),
        ([send("a", 1), line("commit", "ok", call=1)], "no commit under way with call 1"),
        ([send("a", 1), line("send", "ok", call=1, partition=1)], "was sent to t-0 and acknowledged in t-1"),
        ([line("send", "invoke", call=1, topic="t", value="a"), line("send", "ok", call=1)], "'partition' is missing"),
        ([line("send", "invoke", call=1, topic="t", partition=[], value="a")], "a partition an integer"),
        ([line("send", "invoke", call=1, topic="t", value=3)], "value must be a string, not 3"),
        ([line("send", "invoke", call=1, topic="t", value="a", inputs="i")], "inputs must be a list of strings"),
        ([line("begin", "ok"), line("begin", "ok")], "has not ended"),
        ([line("commit", "invoke", call=1)], "commit outside a transaction"),
        ([line("poll", "ok", records=[["t", 0, 1]])], "a record must be [topic, partition, offset, value]"),
        ([line("poll", "ok", records=7)], "records must be a list"),
        ([line("assign", "ok", partitions=[["t", 0]])], "partitions must be a list of [topic, partition, offset]"),
        ([line("final_read", "invoke", call=1, ranges=[["t", 0]])], "ranges must be a list of"),
        (
            [line("commit_offsets", "invoke", call=1, group_id="g", offsets=[["t", 0, None]])],
            "an offset to commit must be an integer",
        ),
        ([*FINAL_READ[:1], line("final_read", "ok", call=9, records=[["t", 1, 0, "a"]])], "outside the ranges"),
    ],
)
def test_a_file_that_is_no_history_is_refused_with_the_reason(lines: list[bytes], reason: str) -> None:
    with pytest.raises(MalformedHistoryError) as refused:
        check_history(lines)
    assert reason.removeprefix("client ") in str(refused.value)
    assert refused.value.line == len(lines)


def test_an_unfinished_last_line_is_put_aside(tmp_path: Path) -> None:
    report = check_history([send("a", 1), send("b", 2)[:-20]])
    assert report.counts["torn_lines"] == 1
    assert report.counts["records_sent"] == 1


def test_a_line_that_follows_an_unfinished_one_of_another_process_counts() -> None:
    report = check_history([send("a", 1)[:30] + send("b", 2), send("c", 3)])
    assert report.counts["torn_lines"] == 1
    assert report.counts["records_sent"] == 2


def test_blank_lines_count_as_lines_only() -> None:
    assert check_history([b"\n", send("a", 1)]).counts["lines"] == 2


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


def test_threads_write_whole_lines_in_the_order_of_their_clock(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryWriter.open(path)

    def work(name: str) -> None:
        client = history.client(name)
        for number in range(200):
            client.send("t", f"{name}-{number}", 0).unknown("not sent at all")

    threads = [threading.Thread(target=work, args=(f"client-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history.close()
    times_ms = [json.loads(one)["time_ms"] for one in path.read_bytes().splitlines()]
    assert times_ms == sorted(times_ms)
    report = check_history(path.read_bytes().splitlines(keepends=True))
    assert report.counts["records_sent"] == 800
    assert report.counts["lines"] == 4 * 401


def test_a_recorder_killed_with_kill_9_has_kept_every_line_that_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    program = (
        "import os, signal, sys\n"
        "from fencepost.history.writer import HistoryWriter\n"
        "client = HistoryWriter.open(sys.argv[1]).client('c', transactional_id='c')\n"
        "client.begin()\n"
        "client.send('t', 'a', 0).ok(offset=0)\n"
        "client.commit()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, check=False)
    report = check_history(path.read_bytes().splitlines(keepends=True))
    assert report.counts["lines"] == 5
    assert report.counts["transactions_of_unknown_outcome"] == 1
