"""The roles of PostgreSQL with which brokers run and a check reads, and a password that changes while they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients_of_processes import PARTITIONS, SETTINGS, create, read, write
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.integration

GRANTS = """
CREATE ROLE runner LOGIN PASSWORD 'first';
CREATE ROLE reader LOGIN;
GRANT USAGE ON SCHEMA {schema} TO runner, reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO runner;
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader;
"""


def as_role(url: str, role: str) -> str:
    return f"postgresql://{role}@{url.partition('@')[2]}"


def test_brokers_run_with_rights_to_rows_alone_and_a_check_with_those_to_read(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = database.cluster_url()
    schema = owner.rpartition("search_path=")[2]
    bucket = objects.make_bucket()
    for name in ("owner", "runner"):
        (tmp_path / name).mkdir()
    with Machines(owner, bucket, tmp_path / "owner", 1, settings=SETTINGS):
        pass  # it has made the tables
    for statement in GRANTS.format(schema=schema).strip().split(";\n"):
        database.execute(statement)
    hba = database.file("pg_hba.conf")
    hba.write_text("local all runner scram-sha-256\n" + hba.read_text())
    database.execute("SELECT pg_reload_conf()")
    passwords = tmp_path / "passwords"
    write_password(passwords, "first")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    with Machines(as_role(owner, "runner"), bucket, tmp_path / "runner", 2, settings=SETTINGS) as machines:
        create(machines.bootstrap, "orders")
        write(machines.bootstrap, ["a"])
        machines.replace(1)
        database.execute("ALTER ROLE runner PASSWORD 'second'")
        write_password(passwords, "second")
        database.execute("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'runner'")
        write(machines.bootstrap, ["b"])
        found = read(machines.bootstrap)
        stores = ["--cluster", as_role(owner, "reader"), *machines.stores[2:]]
        check = subprocess.run(
            [sys.executable, "-m", "fencepost", "cluster", "check", *stores],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert {value: len(partitions) for value, partitions in found.items()} == {"a": PARTITIONS, "b": PARTITIONS}
    assert check.returncode == 0, check.stdout + check.stderr


def write_password(path: Path, password: str) -> None:
    path.write_text(f"*:*:*:runner:{password}\n")
    path.chmod(0o600)
