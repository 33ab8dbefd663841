"""Dead letters are recognised by Kafka's headers; what others wrote under these names ends nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.cli.dead_letters import Chosen, OffsetRange, original_headers, row_of

HEADERS: list[tuple[str, bytes | None]] = [
    ("trace", b"x"),
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"41"),
    ("__dlq.errors.group", b"g"),
    ("__dlq.errors.delivery.count", b"3"),
    ("__dlq.errors.message", b"why"),
]


def consumed(headers: list[tuple[str, bytes | None]]) -> Any:
    return SimpleNamespace(
        topic="dlq.orders", partition=0, offset=7, timestamp=1_700_000_000_000, key=b"k", value=b"v", headers=headers
    )


def test_a_dead_letter_is_shown_with_the_place_of_its_original() -> None:
    row = row_of(consumed(HEADERS), "g")
    assert row is not None
    assert [row[name] for name in ("topic", "partition", "offset", "delivery_count", "message")] == [
        "orders",
        2,
        41,
        3,
        "why",
    ]
    assert (row["key"], row["value"], row["headers"]) == ("k", "v", [["trace", "x"]])
    assert (row["dead_letter_partition"], row["dead_letter_offset"]) == (0, 7)


def test_records_of_other_groups_and_others_are_left_out() -> None:
    assert row_of(consumed(HEADERS), "other") is None
    assert row_of(consumed([]), "g") is None


def test_the_brokers_header_counts_not_one_of_the_original_record() -> None:
    row = row_of(consumed([("__dlq.errors.topic", b"forged"), *HEADERS]), "g")
    assert row is not None
    assert row["topic"] == "orders"


@pytest.mark.parametrize("offset", [b"x", b"-1", b"9" * 5_000, None, b"\xff"])
def test_a_number_that_is_none_is_shown_as_unknown(offset: bytes | None) -> None:
    row = row_of(consumed([*HEADERS, ("__dlq.errors.offset", offset)]), "g")
    assert row is not None
    assert row["offset"] is None


def test_the_last_header_of_each_name_is_the_brokers_and_the_others_are_the_records() -> None:
    earlier = [("__dlq.errors.topic", b"earlier"), ("__dlq.errors.other", b"mine"), ("trace", b"y")]
    assert original_headers([*earlier, *HEADERS[1:]]) == tuple(earlier)


def test_offsets_are_chosen_alone_or_as_a_range() -> None:
    row = {"topic": "orders", "partition": 2, "offset": 41}
    assert Chosen().has(row)
    assert Chosen(("orders",), (2,), (OffsetRange(40, 41),)).has(row)
    assert not Chosen(("others",)).has(row)
    assert not Chosen(partitions=(1,)).has(row)
    assert not Chosen(offsets=(OffsetRange(0, 40),)).has(row)
    assert not Chosen(offsets=(OffsetRange(0, 40),)).has({**row, "offset": None})


@pytest.mark.parametrize("offsets", ["5-1", "x", "1-", "-1", ""])
def test_offsets_that_are_none_are_refused(offsets: str) -> None:
    command = ["groups", "redeliver", "g", f"--offsets={offsets}"]
    refused = CliRunner().invoke(fencepost, command, prog_name="fencepost")
    assert refused.exit_code == 2
    assert "write 41, or 41-50" in refused.output
