"""The console's audit log: lines of JSON on every attempt, each bounded, in a chain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.console.audit_chain import verify
from fencepost.console.web import audit
from fencepost.console.web.audit import LONGEST_TEXT, MOST_VALUES, AuditLog, Line, Outcome


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "audit.log"
    audit.open_audit_log(str(path))
    yield path
    audit.close_audit_log()


def record(user: str | None, subject: str) -> None:
    asyncio.run(audit.record(Line(Outcome.DONE, "delete-topic", user, "127.0.0.1", subject=subject)))


def test_a_change_is_one_line_whatever_its_subject_holds(log: Path) -> None:
    record("alice", "orders\n\u202e")
    record("alice", "payments")
    first, second = log.read_text(encoding="ascii").splitlines()
    assert json.loads(first)["subject"] == "orders\n\u202e"
    assert json.loads(second)["subject"] == "payments"
    assert verify(log.read_bytes().splitlines()).faults == []


def test_a_change_without_a_log_in_is_that_of_anonymous(log: Path) -> None:
    record(None, "orders")
    entry = json.loads(log.read_text(encoding="ascii"))
    assert (entry["event"], entry["user"], entry["outcome"]) == ("console_change", "ANONYMOUS", "done")
    assert entry["time"].endswith("+00:00")


def test_long_names_and_many_values_are_cut(log: Path) -> None:
    values = [("x" * 5_000, "1", "2")] * (MOST_VALUES + 7)
    line = Line(Outcome.DONE, "c" * 9_999, "u" * 9_999, "::1", subject="s" * 9_999, values=values, why="w" * 9_999)
    asyncio.run(audit.record(line))
    (text,) = log.read_text().splitlines()
    entry = json.loads(text)
    assert len(entry["subject"]) == len(entry["user"]) == LONGEST_TEXT
    assert (len(entry["values"]), entry["values_left_out"]) == (MOST_VALUES, 7)
    assert len(text) < 40_000


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        audit.open_audit_log(str(tmp_path / "no-such-folder" / "audit.log"))


def test_the_chain_goes_on_over_a_new_start_and_over_two_consoles_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    logs = [AuditLog(str(path)) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: logs[number % 4].write({"number": number}), range(100)))
    AuditLog(str(path)).write({"number": 100})
    found = verify(path.read_bytes().splitlines())
    assert (found.lines, found.faults) == (101, [])


def test_the_chain_goes_on_in_a_new_file_after_the_old_one_was_renamed(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    log = AuditLog(str(path))
    log.write({"number": 1})
    path.rename(old)
    log.write({"number": 2})
    assert verify(path.read_bytes().splitlines()).begins_behind == verify(old.read_bytes().splitlines()).last


def test_a_line_that_was_cut_by_a_crash_stays_alone_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    AuditLog(str(path)).write({"number": 1})
    with path.open("ab") as file:
        file.write(b'{"number": 2, "bef')
    AuditLog(str(path)).write({"number": 3})
    lines = path.read_bytes().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[2])["number"] == 3
    assert verify(lines).faults == ["Line 2 is no line of an audit log."]


def test_standard_error_has_a_chain_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(None)
    log.write({"number": 1})
    log.write({"number": 2})
    lines = capsys.readouterr().err.encode().splitlines()
    assert (len(lines), verify(lines).faults) == (2, [])
