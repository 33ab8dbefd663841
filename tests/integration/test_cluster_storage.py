"""A cluster's stores as its operators see them: checked, exported, read by a broker of one machine and by Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition

from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.postgres.connections import connect, parse_address
from fencepost.broker.cluster.postgres.schema import FORMAT, prepare
from fencepost.cli.cluster import cluster as cluster_command
from scripts.apache_kafka import KAFKA_VERSION
from tests.broker.cluster.remote.remote_world import RemoteCluster, RemoteWorld
from tests.broker.conftest import cluster_url, durable_postgres  # noqa: F401
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.support.broker_process import BrokerProcess
from tests.support.json_outputs import check_output
from tests.support.missing_tools import missing, require_tool
from tests.support.object_server import ObjectServer, object_server

pytestmark = pytest.mark.integration

RECORDS = 40


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectServer]:
    with object_server(tmp_path / "objects") as server:
        yield server


@pytest.fixture
def location(objects: ObjectServer) -> ObjectLocation:
    return objects.make_bucket("backups/a-cluster")


@pytest.fixture
async def node(cluster_url: str, location: ObjectLocation, tmp_path: Path) -> AsyncIterator[RemoteWorld]:  # noqa: F811
    made = await RemoteCluster.found(parse_address(cluster_url), S3Objects(location), str(tmp_path / "scratch"))
    made.inline_max_bytes = 300
    world = await made.start()
    await world.take_over()
    await world.write(RECORDS // 2)
    await world.seal_all()
    await world.write(RECORDS // 2)
    yield world
    await made.close()


@pytest.fixture
def stores(cluster_url: str, location: ObjectLocation) -> list[str]:  # noqa: F811
    keys = "access_key_id=tests&secret_access_key=not-checked"
    return ["--cluster", cluster_url, "--objects", f"{location}&{keys}"]


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in a process of its own, as the test's event loop is running."""
    result = subprocess.run(
        [sys.executable, "-m", "fencepost", "cluster", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "--json" in arguments and result.stdout:
        check_output(f"cluster {arguments[0]}", result.stdout)
    return result.returncode, result.stdout + result.stderr


async def test_the_check_passes_and_names_an_object_that_is_gone(
    node: RemoteWorld, stores: list[str], objects: ObjectServer, location: ObjectLocation
) -> None:
    code, output = run("check", "--json", *stores)
    assert code == 0, output
    report = json.loads(output)
    assert report["problems"] == []
    assert report["segments"] == len(node.orders.segments.sealed) - unsealed(node)
    assert report["flushes"] > 0
    gone = next(name for name in objects.files(location) if name.endswith(".log"))
    (objects.directory / location.bucket / gone).unlink()
    code, output = run("check", *stores)
    assert code == 1
    assert f"there is no object {gone.removeprefix('backups/a-cluster/')}" in output
    assert "restore the database and the bucket to one moment" in output


async def test_tables_of_another_version_are_not_read(stores: list[str], cluster_url: str) -> None:  # noqa: F811
    address = parse_address(cluster_url)
    connection = await connect(address, application_name="test")
    await prepare(connection, address)
    await connection.execute("UPDATE cluster SET format = 99")
    await connection.close()
    code, output = run("check", *stores)
    assert code == 1
    assert f"have format 99, this command reads format {FORMAT}; use the command of the version" in output


async def test_what_to_do_about_a_bucket_that_does_not_answer_is_said(cluster_url: str) -> None:  # noqa: F811
    address = parse_address(cluster_url)
    connection = await connect(address, application_name="test")
    await prepare(connection, address)
    await connection.close()
    nowhere = "s3://nowhere?endpoint=http://127.0.0.1:1&access_key_id=tests&secret_access_key=not-checked"
    code, output = run("check", "--cluster", cluster_url, "--objects", nowhere)
    assert code == 1
    assert "cannot list s3://nowhere/" in output
    assert "Check the endpoint and region, the network, and the keys" in output
    assert "not-checked" not in output


def dump(logs: Sequence[Path]) -> str:
    """What Kafka's DumpLogSegments prints of log files."""
    require_tool("java")
    try:
        jars = ":".join(class_path((artifact, KAFKA_VERSION)) for artifact in ("kafka-tools", "kafka_2.13"))
    except NotHereError as error:
        missing(str(error))
    command = ["java", "-cp", jars, "org.apache.kafka.tools.DumpLogSegments"]
    arguments = ["--deep-iteration", "--files", ",".join(str(path) for path in logs)]
    dumped = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert dumped.returncode == 0, dumped.stderr
    return dumped.stdout


def unsealed(node: RemoteWorld) -> int:
    """Segments that were rolled after the last one was sealed."""
    kept = node.sealed.fetches._kept.get(node.orders.topic_partition)
    assert kept is not None
    return sum(one not in kept.stored for one in node.orders.segments.sealed)


async def test_an_export_is_served_by_a_broker_of_one_machine_and_read_by_kafkas_own_tool(
    node: RemoteWorld, stores: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output = run("export", "--json", *stores, "orders", str(out))
    assert code == 0, output
    (exported,) = json.loads(output)
    assert (exported["topic"], exported["end_offset"]) == ("orders", RECORDS)
    with BrokerProcess(out) as broker:
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed")
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values = [record.value for _ in range(RECORDS) for record in [next(consumer)]]
        consumer.close()
    assert [value[:1] for value in values] == [str(number % 20)[:1].encode() for number in range(RECORDS)]
    logs = sorted((out / "orders-0").glob("*.log"))
    assert len(logs) > 3
    dumped = dump(logs)
    assert sum(line.startswith("|") and "offset:" in line for line in dumped.splitlines()) == RECORDS
    assert "isvalid: false" not in dumped


def test_what_is_wrong_with_the_addresses_is_said_without_their_secrets() -> None:
    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(cluster_command, ["check", *arguments])
        assert result.exit_code == 2
        assert "hush" not in result.output
        return result.output

    url = "postgresql://me:hush@localhost/x"
    assert "write s3://BUCKET/PREFIX" in refused("--cluster", url, "--objects", "bucket")
    assert "keys" in refused("--cluster", url, "--objects", "s3://key:hush@bucket")
    assert "expected postgresql://" in refused("--cluster", "mysql://me:hush@x", "--objects", "s3://bucket")
    assert "Missing option" in refused("--cluster", url)
