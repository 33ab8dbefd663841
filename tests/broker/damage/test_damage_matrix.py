"""Every kind of file of a log directory, damaged in every way, after a clean stop and after kill -9.

What a start then serves is right, or it is refused and a line says where; what was not damaged is served. The judge is
`tests.support.damaged_directory`. A sample with every way for every kind of file runs always, the rest with
`./scripts/test --everything`.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from crc32c import crc32c

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.record_batch import iterate_batches
from tests.support.damaged_directory import INVOICES, MORE_ORDERS, ORDERS, PARTITIONS, Template, build, judge

HEADER_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "format": (16, 1),
    "checksum": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "first timestamp": (27, 8),
    "greatest timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
    "records": (61, 3),
}
ROOT_FILES = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
BITS = range(8)


class Cell(NamedTuple):
    """One damage. damaged: the partitions of which files are touched; `is_of_root`: a file beside them is."""

    name: str
    damage: Callable[[Path, Template], object]
    damaged: tuple[TopicPartition, ...]
    is_of_root: bool = False


# Ways


def flip(file: Path, position: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0x80 >> bit
    file.write_bytes(content)


def cut(file: Path, size_bytes: int) -> None:
    os.truncate(file, size_bytes)


def extend(file: Path, content: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(content)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name(one.name + ".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def link_to(file: Path, target: Path, *, is_hard: bool) -> None:
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()
    if is_hard:
        os.link(target, file)
    else:
        file.symlink_to(target)


def make_directory(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


def batch_positions(content: bytes) -> list[int]:
    positions, position = [], 0
    for batch in iterate_batches(content):
        positions.append(position)
        position += batch.header.size_bytes
    return positions


# Cells


def partition_cells(template: Template, name: TopicPartition) -> Iterator[Cell]:
    directory = template.path / str(name)
    logs = sorted(one.name for one in directory.glob("*.log"))
    for place, log_name in (("first", logs[0]), ("middle", logs[len(logs) // 2]), ("last", logs[-1])):
        content = (directory / log_name).read_bytes()
        yield from batch_cells(name, place, log_name, content)
    chosen = {suffix: sorted(one.name for one in directory.glob(f"*{suffix}")) for suffix in SUFFIXES}
    for suffix, names in chosen.items():
        for place, index in {"first": 0, "middle": len(names) // 2, "last": len(names) - 1}.items():
            if names:
                yield from file_cells(template, name, f"{place} {suffix}", names[index])
    for other in ("leader-epoch-checkpoint", "segment-checksums", "partition.metadata"):
        if (directory / other).exists():
            yield from file_cells(template, name, other, other)
    yield from directory_cells(name, logs)


SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def batch_cells(name: TopicPartition, place: str, log_name: str, content: bytes) -> Iterator[Cell]:
    positions = batch_positions(content)
    for which, position in {"first": 0, "middle": len(positions) // 2, "last": len(positions) - 1}.items():
        if not positions:
            return
        start = positions[position]
        for field, (offset, size) in HEADER_FIELDS.items():
            for at in range(offset, offset + size):
                for bit in BITS:
                    yield Cell(
                        f"{name}: bit {bit} of byte {at} ({field}) of the {which} batch of the {place} segment",
                        lambda path, _, at=start + at, bit=bit: flip(path / str(name) / log_name, at, bit),
                        (name,),
                    )
        for label, size in {"at": start, "inside": start + 30}.items():
            yield Cell(
                f"{name}: {place} segment cut {label} its {which} batch",
                lambda path, _, size=size: cut(path / str(name) / log_name, size),
                (name,),
            )


def file_cells(template: Template, name: TopicPartition, label: str, file_name: str) -> Iterator[Cell]:
    content = (template.path / str(name) / file_name).read_bytes()
    sibling, stranger = (MORE_ORDERS if name != MORE_ORDERS else ORDERS), (INVOICES if name != INVOICES else ORDERS)

    def cell(way: str, damage: Callable[[Path, Template], object], *others: TopicPartition) -> Cell:
        return Cell(f"{name}: {label} ({file_name}) {way}", damage, (name, *others))

    def at(path: Path, partition: TopicPartition = name) -> Path:
        return path / str(partition) / file_name

    yield cell("deleted", lambda path, _: at(path).unlink())
    yield cell("a directory", lambda path, _: make_directory(at(path)))
    yield cell("emptied", lambda path, _: cut(at(path), 0))
    yield cell("halved", lambda path, _: cut(at(path), len(content) // 2))
    yield cell("without its last byte", lambda path, _: cut(at(path), max(len(content) - 1, 0)))
    yield cell("zeroed", lambda path, _: at(path).write_bytes(bytes(len(content))))
    yield cell("with zeros behind it", lambda path, _: extend(at(path), bytes(100)))
    yield cell("with garbage behind it", lambda path, _: extend(at(path), bytes(range(7, 207))))
    for position in range(len(content)) if len(content) < 300 else ():
        for bit in BITS:
            yield cell(f"bit {bit} of byte {position}", lambda path, _, p=position, b=bit: flip(at(path), p, b))
    if (template.earlier / str(name) / file_name).is_file():
        yield cell("an old copy", lambda path, one: shutil.copy(one.earlier / str(name) / file_name, at(path)))
    for other in (sibling, stranger):
        if (template.path / str(other) / file_name).is_file():
            yield cell(f"swapped with {other}'s", lambda path, _, o=other: swap(at(path), at(path, o)), other)
            for is_hard in (False, True):
                yield cell(
                    f"a {'hard' if is_hard else 'symbolic'} link to {other}'s",
                    lambda path, _, o=other, h=is_hard: link_to(at(path), at(path, o), is_hard=h),
                    other,
                )
    if os.geteuid() != 0:
        yield cell("without permission", lambda path, _: at(path).chmod(0))


def directory_cells(name: TopicPartition, logs: list[str]) -> Iterator[Cell]:
    def cell(way: str, damage: Callable[[Path, Template], object], *others: TopicPartition) -> Cell:
        return Cell(f"{name}: directory {way}", damage, (name, *others))

    for other in PARTITIONS:
        if other > name:
            yield cell(f"swapped with {other}'s", lambda path, _, o=other: swap(path / str(name), path / str(o)), other)
        if other != name:
            yield cell(
                f"a link to {other}'s",
                lambda path, _, o=other: link_to(path / str(name), path / str(o), is_hard=False),
                other,
            )
    strange = {
        "99999999999999999999.log": "an offset above 2^63",
        "0000000000000000001.log": "a number of 19 digits",
        "000000000000000000001.log": "a number of 21 digits",
        "00000000000000000999.log": "the offset of no record",
        "00000000000000000999.snapshot": "the snapshot of no record",
        "-0000000000000000001.log": "a negative offset",
    }
    for file_name, what in strange.items():
        yield cell(
            f"with a file of {what}",
            lambda path, _, f=file_name: shutil.copy(path / str(name) / logs[0], path / str(name) / f),
        )
    yield cell(
        "with its first segment under the name of a later offset",
        lambda path, _: (path / str(name) / logs[0]).rename(path / str(name) / f"{1:020d}.log"),
    )


def root_cells(template: Template) -> Iterator[Cell]:
    for file_name in ROOT_FILES:
        file = template.path / file_name
        content = file.read_bytes() if file.exists() else b""

        def cell(way: str, damage: Callable[[Path], object], name: str = file_name) -> Cell:
            return Cell(f"{name} {way}", lambda path, _: damage(path / name), PARTITIONS, is_of_root=True)

        yield cell("of zeros", lambda one: one.write_bytes(bytes(30)))
        yield cell("of garbage", lambda one: one.write_bytes(bytes(range(100, 250))))
        yield cell("emptied", lambda one: one.write_bytes(b""))
        yield cell("a directory", make_directory)
        for what, offset in {
            "huge": 2**62,
            "beyond 2^63": 2**70,
            "zero": 0,
            "beyond the end": 5000,
        }.items():
            lines = "".join(f"{name.topic} {name.partition} {offset}\n" for name in PARTITIONS)
            text = f"0\n{len(PARTITIONS)}\n{lines}".encode()
            yield cell(f"with {what} offsets", lambda one, text=text: one.write_bytes(text))
        yield cell("with one partition twice", lambda one: one.write_bytes(b"0\n2\norders 0 4\norders 0 6\n"))
        yield cell("with a negative offset", lambda one: one.write_bytes(b"0\n1\norders 0 -4\n"))
        if content:
            yield cell("deleted", lambda one: one.unlink())
            yield cell("halved", lambda one: cut(one, one.stat().st_size // 2))
            for position in range(len(content)):
                for bit in BITS:
                    yield cell(f"bit {bit} of byte {position}", lambda one, p=position, b=bit: flip(one, p, b))
        old = template.earlier / file_name
        if old.exists():
            yield cell("an old copy", lambda one, old=old: shutil.copy(old, one))
    for strange in ("orders-99999999999", "orders-007", "orders--1", "orders-", "-0"):
        yield Cell(f"a directory {strange}", lambda path, _, s=strange: (path / s).mkdir(), (), is_of_root=True)


def cells(template: Template) -> list[Cell]:
    found = [cell for name in PARTITIONS for cell in partition_cells(template, name)]
    return found + list(root_cells(template))


def sample(found: list[Cell]) -> list[Cell]:
    """Each way of damage once for each kind of file and each field of a batch, with the partitions taking turns."""
    alike: dict[str, list[Cell]] = {}
    for cell in found:
        alike.setdefault(_kind(cell.name), []).append(cell)
    return [some[crc32c(kind.encode()) % len(some)] for kind, some in alike.items()]


def _kind(name: str) -> str:
    """What a cell's damage has in common with others."""
    kind = re.sub(r"^[a-z_]+-[0-9]+: |bit . of byte [0-9]+|[0-9]{3,}|first|middle|last", "", name)
    return re.sub("|".join(re.escape(str(one)) for one in PARTITIONS), "another", kind)


@pytest.fixture(params=[True, False], ids=["after a clean stop", "after kill -9"])
async def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    return await build(tmp_path_factory.mktemp("template"), is_clean=request.param)


async def run(template: Template, chosen: list[Cell], tmp_path: Path) -> list[str]:
    """Damage a copy for each cell; returns what is wrong with what a start made of it."""
    faults = []
    for number, cell in enumerate(chosen):
        path = tmp_path / str(number)
        shutil.copytree(template.path, path)
        cell.damage(path, template)
        verdict = await judge(template, path, cell.damaged, is_of_root=cell.is_of_root)
        faults += [f"{cell.name} -> {fault}" for fault in verdict.faults]
        shutil.rmtree(path)
    return faults


async def test_nothing_is_wrong_with_a_directory_that_is_as_it_was_left(template: Template, tmp_path: Path) -> None:
    intact = Cell("nothing", lambda _path, _template: None, ())
    assert await run(template, [intact], tmp_path) == []


@pytest.mark.timeout(300)
async def test_a_sample_of_damages_is_never_believed_in_silence(template: Template, tmp_path: Path) -> None:
    assert await run(template, sample(cells(template)), tmp_path) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_no_damage_is_ever_believed_in_silence(template: Template, tmp_path: Path) -> None:
    assert await run(template, cells(template), tmp_path) == []
