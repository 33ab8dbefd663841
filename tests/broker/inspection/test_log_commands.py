"""`fencepost log` as people and scripts use it: exit codes, JSON, what it refuses, and that it needs no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.cli.commands import fencepost
from tests.support.data_directory import batches_of, flip, log_paths, served, tree
from tests.support.log_world import LogWorld, content_of


@pytest.fixture
async def damaged(world: LogWorld) -> str:
    """A directory with five records, of which one cannot be read."""
    log = world.create()
    for number in range(5):
        world.append(b"value %d" % number)
    await log.flushed()
    await world.stop()
    (path,) = log_paths(world.path)
    flip(path, batches_of(path)[2][0] + 70)
    return world.path


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(fencepost, ["log", *arguments], env=environment, prog_name="fencepost")


async def healthy(world: LogWorld) -> str:
    log = world.create()
    world.append(b"value")
    await log.flushed()
    await world.stop()
    return world.path


async def test_nothing_wrong_is_exit_code_0(world: LogWorld) -> None:
    path = await healthy(world)
    result = await in_thread("verify", "--data-dir", path)
    assert result.exit_code == 0
    assert "1 partition, 1 record" in result.stdout
    assert "nothing is wrong" in result.stdout
    assert (await in_thread("repair", "--data-dir", path)).exit_code == 0


async def in_thread(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """The commands have an event loop of their own."""
    import asyncio

    return await asyncio.to_thread(run, *arguments, environment=environment)


async def test_damage_is_shown_with_place_offsets_and_choices(damaged: str) -> None:
    result = await in_thread("verify", "--data-dir", damaged)
    assert result.exit_code == 1
    position = batches_of(log_paths(damaged)[0])[2][0]
    assert f"00000000000000000000.log, at position {position}" in result.stdout
    assert "2 (1 record)" in result.stdout
    assert f"fencepost log repair --data-dir {damaged} orders-0 --accept-loss" in result.stdout
    assert "after a crash it would be offline" in result.stdout


async def test_json_has_all_that_is_known(damaged: str) -> None:
    result = await in_thread("verify", "--json", "--data-dir", damaged, "orders-0")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["healthy"] is False
    assert document["partitions"][0]["log_end_offset"] == 5
    (finding,) = document["findings"]
    assert (finding["severity"], finding["first_offset"], finding["end_offset"]) == ("damage", 2, 3)
    assert finding["choices"][1]["action"].endswith("--accept-loss")


async def test_a_repair_reports_its_losses_and_the_file_that_keeps_them(damaged: str) -> None:
    before = tree(damaged)
    dry = await in_thread("repair", "--accept-loss", "--dry-run", "--data-dir", damaged)
    assert "would be repaired" in dry.stdout
    assert tree(damaged) == before
    refused = await in_thread("repair", "--data-dir", damaged)
    assert refused.exit_code == 1
    assert "it takes --accept-loss" in refused.stdout
    result = await in_thread("repair", "--accept-loss", "--data-dir", damaged, "orders-0")
    assert result.exit_code == 0
    assert "1 offset given up" in result.stdout
    (kept,) = [line.split()[1] for line in result.stdout.splitlines() if line.strip().startswith("kept")]
    assert content_of(kept)
    assert list((await served(damaged))[1]) == [0, 1, 3, 4]


async def test_the_directory_is_found_as_serve_finds_it(world: LogWorld, tmp_path: Path) -> None:
    path = await healthy(world)
    by_variable = await in_thread("verify", environment={"FENCEPOST_LOG_DIRS": path})
    assert by_variable.exit_code == 0
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={path}\n")
    assert (await in_thread("verify", "--config", str(properties))).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "--data-dir", "/nowhere/at/all"], "there is no data directory"),
        (["repair", "--cut"], "--cut goes with --accept-loss"),
        (["verify", "orders"], "expected TOPIC-PARTITION"),
        (["verify", "others-7"], "there is no partition others-7"),
    ],
)
async def test_impossible_arguments_give_exit_code_2(world: LogWorld, arguments: list[str], says: str) -> None:
    path = await healthy(world)
    if "--data-dir" not in arguments:
        arguments = [*arguments, "--data-dir", path]
    result = await in_thread(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


async def test_a_directory_in_use_is_left_alone(world: LogWorld) -> None:
    world.create()
    for command in ("verify", "repair"):
        result = await in_thread(command, "--data-dir", world.path)
        assert result.exit_code == 1
        assert "is in use by a broker" in result.stderr
        assert "Stop the broker first" in result.stderr


async def test_no_broker_may_start_meanwhile(world: LogWorld) -> None:
    from fencepost.broker.inspection.directory_lock import exclusive_use

    path = await healthy(world)
    disk = LocalDisk()
    with exclusive_use(path, may_create=True):
        assert not disk.lock(f"{path}/.lock")
    assert disk.lock(f"{path}/.lock")
    disk.close()


def test_neither_the_server_nor_uvloop_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from fencepost.cli.commands import fencepost; "
        f"CliRunner().invoke(fencepost, ['log', 'verify', '--data-dir', {str(tmp_path)!r}]); "
        "heavy = ('uvloop', 'fencepost.broker.network.server', 'fencepost.broker.node'); "
        "print(sorted(name for name in sys.modules if name in heavy));"
        "assert 'fencepost.broker.inspection.verification' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_nothing_of_the_broker() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from fencepost.cli.commands import fencepost; "
        "assert CliRunner().invoke(fencepost, ['log', 'repair', '--help']).exit_code == 0; "
        "heavy = tuple(f'fencepost.broker.{room}' for room in ('log', 'inspection', 'config')); "
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
