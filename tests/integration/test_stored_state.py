"""What earlier versions have written is opened by this one, upgraded and served: data directories, and a cluster."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from fencepost.broker.cluster.postgres.connections import connect, parse_address
from fencepost.broker.cluster.postgres.schema import FORMAT
from tests.support import stored_release
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.machines import Machines
from tests.support.moved_broker import moved
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer
from tests.support.stored_state import FORMS, SCHEMA, SETTINGS, check, stored_forms, unpack


def archives(form: str) -> list[Path]:
    return [one for one in stored_forms() if one.name.startswith(f"{form}-")]


def test_each_form_of_a_broker_is_stored() -> None:
    assert {form for form in FORMS if archives(form)} == set(FORMS)
    assert sum(one.stat().st_size for one in stored_forms()) < 200_000


@pytest.mark.parametrize("archive", archives("one-process"), ids=lambda one: one.name)
def test_a_stored_directory_is_served(archive: Path, tmp_path: Path) -> None:
    facts = unpack(archive, tmp_path)
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        check(broker.bootstrap, facts)
        assert "Traceback" not in broker.output
        assert "unclean_stop_found" not in broker.output


def test_a_directory_of_the_first_release_has_each_record_and_its_open_transaction_is_not_committed(
    tmp_path: Path,
) -> None:
    facts = stored_release.unpack(tmp_path)
    with BrokerProcess(tmp_path / "data", settings=stored_release.SETTINGS) as broker:
        stored_release.check(broker.bootstrap, facts)
        assert "Traceback" not in broker.output
        assert "unclean_stop_found" not in broker.output


def test_a_directory_of_a_later_format_is_refused_in_one_line_and_left_as_it_is(tmp_path: Path) -> None:
    stored_release.unpack(tmp_path)
    data = tmp_path / "data"
    with sqlite3.connect(data / "metadata.sqlite") as metadata:
        metadata.execute("PRAGMA user_version = 99")
    metadata.close()
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in data.rglob("*") if path.is_file()}
    broker = BrokerProcess(data, settings=stored_release.SETTINGS)
    with pytest.raises(BrokerFailedError, match="has format 99, this broker reads format 1; start the version"):
        broker.start()
    assert "Traceback" not in broker.output
    assert before == {path: hashlib.sha256(path.read_bytes()).digest() for path in before}


@pytest.mark.parametrize("archive", archives("processes"), ids=lambda one: one.name)
def test_a_stored_directory_of_several_processes_is_served(archive: Path, tmp_path: Path) -> None:
    facts = unpack(archive, tmp_path)
    with BrokerProcesses(tmp_path / "data", 2, settings=SETTINGS) as broker:
        check(broker.bootstrap, facts)
        assert "Traceback" not in broker.output


@pytest.mark.parametrize("archive", [*archives("one-process"), *archives("processes")], ids=lambda one: one.name)
def test_a_stored_directory_is_imported_into_a_cluster(
    archive: Path, tmp_path: Path, database: PostgresServer, objects: ObjectServer
) -> None:
    facts = unpack(archive, tmp_path)
    url, bucket = database.cluster_url(), objects.make_bucket()
    moved(url, bucket, "import", str(tmp_path / "data"))
    with Machines(url, bucket, tmp_path, 2, settings=SETTINGS) as machines:
        check(machines.bootstrap, facts)
        assert "Traceback" not in machines.output


async def put_back(url: str, tables: str) -> int:
    """Put stored tables into a schema, as if nothing had happened since; returns their format."""
    address = parse_address(url)
    lines = tables.replace(SCHEMA, address.schema).splitlines()
    # Of the settings and psql's commands none matters, and other versions of PostgreSQL do not know all of them.
    statements = "\n".join(
        line for line in lines if not line.startswith(("SET ", "\\", "SELECT pg_catalog.set_config"))
    )
    connection = await connect(address, application_name="test")
    try:
        await connection.execute(statements)
        await connection.execute("UPDATE cluster SET place = NULL, timeline = NULL")
        found: int = await connection.fetchval("SELECT format FROM cluster")
    finally:
        await connection.close()
    return found


@pytest.mark.parametrize("archive", archives("cluster"), ids=lambda one: one.name)
def test_a_stored_cluster_is_upgraded_and_served(
    archive: Path, tmp_path: Path, database: PostgresServer, objects: ObjectServer
) -> None:
    facts = unpack(archive, tmp_path)
    url, bucket = database.cluster_url(), objects.make_bucket()
    shutil.copytree(tmp_path / "objects", objects.directory / bucket.bucket, dirs_exist_ok=True)
    found = asyncio.run(put_back(url, (tmp_path / "tables.sql").read_text()))
    with Machines(url, bucket, tmp_path, 2, settings=SETTINGS) as machines:
        check(machines.bootstrap, facts)
        assert machines.output.count("cluster_tables_upgraded") == FORMAT - found
        assert "Traceback" not in machines.output
    moved(url, bucket, "export", "--all", str(tmp_path / "out"))
