"""`fencepost log dump` shows what is in the files of a partition, and goes on behind damage."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from click.testing import CliRunner, Result

from fencepost.broker.inspection import dump
from fencepost.broker.log.log_config import LogConfig
from fencepost.cli.commands import fencepost
from tests.support.data_directory import batches_of, flip, log_paths
from tests.support.log_world import TOPIC_ID, LogWorld

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, fencepost, ["log", "dump", *arguments], prog_name="fencepost")


async def rows(*arguments: str) -> list[dict[str, Any]]:
    result = await run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def written(world: LogWorld) -> str:
    log = world.create(CONFIG)
    for number in range(8):
        world.append(b"v" * 100, key=b"\x1b[31m%d" % number)
    world.append(b"data", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(7, 1, committed=False)
    world.append(b"more", producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    world.end_transaction(7, 2, committed=True)
    await log.flushed()
    await world.stop()
    return world.path


async def test_every_kind_of_file_is_decoded(world: LogWorld) -> None:
    path = await written(world)
    found = await rows("--data-dir", path, "orders-0")
    kinds = {row["kind"] for row in found}
    assert kinds == {
        "batch",
        "index entry",
        "time entry",
        "aborted transaction",
        "producer",
        "leader epoch",
        "topic id",
    }
    batches = [row for row in found if row["kind"] == "batch"]
    assert [row["base_offset"] for row in batches] == list(range(12))
    assert [row["marker"] for row in batches if row["is_control"]] == ["ABORT", "COMMIT"]
    (aborted,) = [row for row in found if row["kind"] == "aborted transaction"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 8, 9)
    assert {row["topic_id"] for row in found if row["kind"] == "topic id"} == {TOPIC_ID.hex()}


async def test_records_are_shown_and_what_a_terminal_would_obey_is_escaped(world: LogWorld) -> None:
    path = await written(world)
    found = [row for row in await rows("--records", log_paths(path)[0]) if row["kind"] == "record"]
    assert (found[0]["key"], found[0]["value"]) == ("\x1b[31m0", "v" * 100)
    shown = (await run("--records", log_paths(path)[0])).stdout
    assert r"\x1b[31m0" in shown
    assert "\x1b" not in shown


async def test_damage_is_shown_and_passed_over(world: LogWorld) -> None:
    path = await written(world)
    first = log_paths(path)[0]
    batches = batches_of(first)
    flip(first, batches[1][0] + 80)
    flip(first, batches[3][0] + 7)
    found = await rows(first)
    assert [row["kind"] for row in found] == ["batch", "damage", *["batch"] * (len(batches) - 2)]
    assert (found[1]["position"], found[1]["first_offset"]) == (batches[1][0], 1)
    assert "base offset" in found[3]["false_header"]


async def test_a_file_that_is_none_of_a_log_or_not_there_is_said(world: LogWorld) -> None:
    path = await written(world)
    (row,) = await rows(f"{path}/metadata.sqlite")
    assert row["kind"] == "unreadable"
    missing = await run("--data-dir", path, "orders-9")
    assert (missing.exit_code, "there is neither a file" in missing.stderr) == (2, True)
    snapshot = next(name for name in os.listdir(f"{path}/orders-0") if name.endswith(".snapshot"))
    flip(f"{path}/orders-0/{snapshot}", 12)
    assert [row["kind"] for row in await rows(f"{path}/orders-0/{snapshot}")] == ["unreadable"]


async def test_a_dump_leaves_no_file_open(world: LogWorld) -> None:
    path = await written(world)
    before = len(os.listdir("/dev/fd"))
    for file in dump.files_of(f"{path}/orders-0"):
        list(dump.dump(file, with_records=False))
    assert len(os.listdir("/dev/fd")) == before
