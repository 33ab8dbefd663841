"""The chain through an audit log shows that lines were changed, removed or added."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.console.audit_chain import FIRST, MOST_FAULTS, NOT_READ, RIGHT, WRONG, digest, encoded, main, verify


def log(count: int, before: str = FIRST) -> list[bytes]:
    lines: list[bytes] = []
    for number in range(count):
        lines.append(encoded({"change": f"delete {number}"}, before))
        before = digest(lines[-1])
    return lines


def test_a_log_as_it_was_written_has_no_fault() -> None:
    lines = log(5)
    found = verify(line + b"\n" for line in lines)
    assert (found.lines, found.faults, found.begins_behind, found.last) == (5, [], FIRST, digest(lines[-1]))
    assert verify([]).lines == 0


@pytest.mark.parametrize(
    "forged",
    [
        lambda lines: [*lines[:1], lines[1].replace(b"delete 1", b"create 1"), *lines[2:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[0], lines[0], *lines[1:]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines[:2], b"", *lines[2:]],
        lambda lines: [*lines[:2], b"[" * 100_000, *lines[2:]],
        lambda lines: [*lines[:2], json.dumps({"before": 7}).encode(), *lines[2:]],
    ],
    ids=["changed", "removed", "repeated", "exchanged", "empty", "deep", "of another type"],
)
def test_a_forged_line_is_seen(forged: object) -> None:
    assert callable(forged)
    assert verify(forged(log(5))).faults_count > 0


def test_a_cut_end_and_a_log_written_anew_are_seen_by_a_digest_that_was_kept_elsewhere() -> None:
    lines = log(5)
    kept = digest(lines[-1])
    assert verify(lines, kept).has_digest
    assert verify([*lines, encoded({}, kept)], kept).has_digest
    cut = verify(lines[:4], kept)
    assert (cut.faults, cut.has_digest) == ([], False)


def test_a_log_begins_behind_another_that_was_renamed_or_behind_lines_without_a_chain() -> None:
    first = log(3)
    second = log(2, before=digest(first[-1]))
    assert verify(second).begins_behind == digest(first[-1])
    old = [json.dumps({"change": "a"}).encode(), json.dumps({"change": "b"}).encode()]
    mixed = [*old, *log(2, before=digest(old[-1]))]
    assert (verify(mixed).unchained, verify(mixed).faults) == (2, [])
    assert verify([old[0], *mixed[2:]]).faults_count == 1


def test_the_faults_that_are_kept_are_bounded() -> None:
    found = verify([encoded({}, "x") for _ in range(100)])
    assert (len(found.faults), found.faults_count) == (MOST_FAULTS, 99)


def test_the_command_says_whether_a_file_is_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.log"
    lines = log(3)
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert main([str(path)]) == RIGHT
    assert capsys.readouterr().out == f"3 lines; the last has the digest {digest(lines[-1])}.\n"
    assert main([str(path), digest(lines[1])]) == RIGHT
    assert main([str(path), "f" * 64]) == WRONG
    assert "No line has the digest that you named" in capsys.readouterr().out
    path.write_bytes(b"\n".join([lines[0], *lines[2:]]))
    assert main([str(path)]) == WRONG
    assert "Line 1 was changed, or lines between it and the next were removed or added." in capsys.readouterr().out
    assert main([str(tmp_path / "none")]) == main([]) == NOT_READ
