"""The console's audit log: one line of JSON per change."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.console.web import audit


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "audit.log"
    before = list(audit.logger.handlers)
    audit.open_audit_log(str(path))
    yield path
    for handler in [one for one in audit.logger.handlers if one not in before]:
        audit.logger.removeHandler(handler)
        handler.close()
    audit.logger.propagate = True
    audit.logger.setLevel(logging.NOTSET)


def record(user: str | None, subject: str) -> None:
    audit.record(user=user, address="127.0.0.1", change="delete-topic", subject=subject, details="", outcome="done")


def test_a_change_is_one_line_whatever_its_subject_holds(log: Path) -> None:
    record("alice", "orders\n\u202e")
    record("alice", "payments")
    first, second = log.read_text(encoding="ascii").splitlines()
    assert json.loads(first)["subject"] == "orders\n\u202e"
    assert json.loads(second)["subject"] == "payments"


def test_a_change_without_a_log_in_is_that_of_anonymous(log: Path) -> None:
    record(None, "orders")
    entry = json.loads(log.read_text(encoding="ascii"))
    assert (entry["event"], entry["user"], entry["outcome"]) == ("console_change", "ANONYMOUS", "done")
    assert entry["time"].endswith("+00:00")


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        audit.open_audit_log(str(tmp_path / "no-such-folder" / "audit.log"))
