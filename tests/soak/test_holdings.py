"""What is counted at the end of a piece of a soak."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fencepost.broker.cluster.postgres import schema
from fencepost.soak.holdings import NO_MEMORY, TABLES, files_in, resident_bytes_of, rows_of


def test_files_are_counted_in_all_folders_below(tmp_path: Path) -> None:
    (tmp_path / "one" / "below").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "a").write_bytes(b"12")
    (tmp_path / "one" / "below" / "b").write_bytes(b"345")
    assert files_in([tmp_path / "one", tmp_path / "two", tmp_path / "absent"]) == (2, 5)


def test_the_memory_of_a_process_is_what_the_kernel_says() -> None:
    assert resident_bytes_of(os.getpid()) > 1_000_000


def test_a_process_that_is_not_there_has_no_memory() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert resident_bytes_of(ended.pid) == resident_bytes_of(None) == NO_MEMORY


def test_all_tables_of_a_cluster_are_counted() -> None:
    source = Path(schema.__file__).read_text()
    assert {table for table in TABLES if f"CREATE TABLE {table} (" in source} == set(TABLES)
    assert source.count("CREATE TABLE ") == len(TABLES)


def test_rows_are_those_that_psql_prints(tmp_path: Path) -> None:
    program = tmp_path / "psql"
    program.write_text("#!/bin/sh\necho 'tail 12'\necho 'nodes 3'\n")
    program.chmod(0o755)
    assert rows_of([str(program)]) == {"tail": 12, "nodes": 3}


def test_there_are_no_rows_if_psql_fails(tmp_path: Path) -> None:
    program = tmp_path / "psql"
    program.write_text("#!/bin/sh\nexit 2\n")
    program.chmod(0o755)
    assert rows_of([str(program)]) == {}
