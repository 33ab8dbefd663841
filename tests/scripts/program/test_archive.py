"""The one-file program's format: the same files make the same bytes, and every file is in the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.program.archive import names_in, pack


def test_the_index_has_each_file_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1" * 700_000)
    (tmp_path / "none").touch()
    program = tmp_path / "program"
    program.write_bytes(pack(b"launcher", {"lib/with spaces": tmp_path / "one", "empty": tmp_path / "none"}))
    assert program.read_bytes().startswith(b"launcher")
    assert names_in(program) == {"lib/with spaces": 700_000, "empty": 0}


def test_the_same_files_make_the_same_program_in_any_order(tmp_path: Path) -> None:
    files = {}
    for name in "abc":
        files[name] = tmp_path / name
        files[name].write_text(name)
    assert pack(b"", files) == pack(b"", dict(reversed(files.items())))


def test_a_path_of_two_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot hold the path"):
        pack(b"", {"a\nb": tmp_path / "file"})


def test_another_file_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x7fELF" * 100)
    with pytest.raises(ValueError, match="is no program"):
        names_in(tmp_path / "file")
