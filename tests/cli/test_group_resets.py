"""Where a reset puts the offsets of a group, and what it refuses."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import pytest
from hypothesis import given

from fencepost.cli.group_descriptions import Place
from fencepost.cli.group_resets import Target, planned, read_offsets
from fencepost.cli.positions import Start
from tests.support.odd_json import odd_json, odd_object

PLACE = Place("orders", 0)


def plan(target: Target, *, committed: int | None = 50, in_file: int = 0) -> int:
    """The offset that is planned for a partition that holds 10 to 100, and has offset 60 at the time."""
    found = planned(
        target,
        [PLACE],
        earliest={PLACE: 10},
        latest={PLACE: 100},
        committed={} if committed is None else {PLACE: committed},
        at_time={PLACE: 60},
        from_file={PLACE: in_file},
    )
    return found[PLACE]


def test_each_target_has_its_offset() -> None:
    assert plan(Target(to="earliest")) == 10
    assert plan(Target(to="latest")) == 100
    assert plan(Target(offset=42)) == 42
    assert plan(Target(shift=-7)) == 43
    assert plan(Target(time_ms=5)) == 60
    assert plan(Target(file=Path("offsets")), in_file=33) == 33


def test_no_offset_is_set_outside_of_what_a_partition_holds() -> None:
    assert plan(Target(offset=3)) == 10
    assert plan(Target(shift=1_000)) == 100
    assert plan(Target(file=Path("offsets")), in_file=101) == 100


def test_what_was_never_committed_cannot_be_shifted() -> None:
    with pytest.raises(click.ClickException, match="no offset for orders-0 that could be shifted"):
        plan(Target(shift=1), committed=None)


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_text('[{"topic": "orders"}]')
    with pytest.raises(click.ClickException, match="not what `reset-offsets --json` prints"):
        read_offsets(path)
    path.write_bytes(b"\xff")
    with pytest.raises(click.ClickException):
        read_offsets(path)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start(), 10),
        (Start(before_end=0), 100),
        (Start(before_end=5), 95),
        (Start(before_end=500), 10),
        (Start(offset=42), 42),
        (Start(offset=0), 10),
        (Start(offset=101), 100),
    ],
)
def test_reading_begins_within_what_a_partition_holds(start: Start, offset: int) -> None:
    assert start.within(10, 100) == offset


@given(odd_json() | odd_object({"topic": "orders", "partition": 0, "offset": 5, "before": None}))
def test_a_file_of_any_json_is_read_or_refused(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "offsets"
        path.write_bytes(b"[" + text + b"]")
        try:
            found = read_offsets(path)
        except click.ClickException as error:
            assert len(error.message.removeprefix(str(path))) < 300  # noqa: PT017  # most are refused, some are not
        else:
            assert all(0 <= place.partition < 1 << 31 and 0 <= offset < 1 << 63 for place, offset in found.items())


@pytest.mark.parametrize(
    "row", ["orders,0," + "1" * 5_000, "orders,0," + "1" * 200_000, "orders,4294967296,1", "o,0,-1"]
)
def test_a_row_beyond_every_range_is_refused(tmp_path: Path, row: str) -> None:
    path = tmp_path / "offsets"
    path.write_text(row)
    with pytest.raises(click.ClickException) as refused:
        read_offsets(path)
    assert len(refused.value.message.removeprefix(str(path))) < 300
