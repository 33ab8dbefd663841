"""Files of committed offsets: what was written is read again, and damage is named with its line."""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli import group_files
from fencepost.cli.group_files import FileOffset, GroupFile, GroupFileError, csv_lines, json_lines, read_file

ID = bytes(range(16))
BILLING = FileOffset("billing", "orders", 0, 5, ID, 3, "from \u202e a\x00b")
STOCK = FileOffset('stock, or "other"', "orders", 1, 7)
FILE = GroupFile([BILLING, STOCK], "c1", "2026-11-30T00:00:00.000Z", {"billing": "consumer"})

OFFSETS = st.lists(
    st.builds(
        FileOffset,
        st.text(min_size=1),
        st.text("abc.-_", min_size=1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.binary(min_size=16, max_size=16),
        st.integers(-1, 2**31 - 1),
        st.text(),
    ),
    unique_by=lambda one: one[:3],
    max_size=5,
)


def lines(file: GroupFile) -> list[bytes]:
    return [f"{line}\n".encode() for line in json_lines(file)]


def changed(number: int, change: Callable[[dict[str, object]], object]) -> list[bytes]:
    """The file with one of its lines changed."""
    found = lines(FILE)
    content = json.loads(found[number])
    change(content)
    found[number] = json.dumps(content).encode()
    return found


def test_a_file_is_read_as_it_was_written() -> None:
    assert read_file(lines(FILE)) == FILE
    assert all(line.isascii() for line in lines(FILE)), "marks of writing direction reorder nothing in an editor"


@given(OFFSETS)
def test_any_names_and_offsets_survive(offsets: list[FileOffset]) -> None:
    assert list(read_file(lines(GroupFile(offsets))).offsets) == offsets


def test_unknown_keys_and_empty_lines_are_no_fault() -> None:
    found = changed(1, lambda line: line.update(colour="red"))
    assert read_file([b"\n", *found, b"\n"]).offsets == FILE.offsets
    assert read_file([codecs.BOM_UTF8 + found[0], *found[1:]]).offsets == FILE.offsets
    assert read_file([codecs.BOM_UTF8 + b"orders,0,5\n"]).offsets == [FileOffset("", "orders", 0, 5)]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ([], "the file is empty"),
        ([b" \n", b"\n"], "the file is empty"),
        (lines(FILE)[:-1], "line 3 is the last, and does not say so: the file was cut"),
        (lines(FILE)[:1], "line 1 is the last, and does not say so"),
        ([*lines(FILE)[:2], *lines(FILE)[3:]], r"line 3: the file has 1 groups and 1 offsets, and had 2 and 2"),
        ([*lines(FILE), lines(FILE)[1]], "line 5: there is more behind the line that says it is the last"),
        ([*lines(FILE)[:2], lines(FILE)[1]], "line 3: 'billing' has orders-0 twice"),
        ([lines(FILE)[0], lines(FILE)[1][:30]], "line 2: it is not JSON"),
        ([lines(FILE)[0], b"\xff\n"], "line 2: it is not UTF-8"),
        (changed(0, lambda line: line.update(version=2)), "line 1: its version is 2; this Fencepost reads up to 1"),
        (changed(0, lambda line: line.update(format="x")), "line 1: its format is 'x', not 'fencepost-groups'"),
        (changed(1, lambda line: line.pop("offset")), "line 2: 'offset' is missing"),
        (changed(1, lambda line: line.update(offset=-1)), "line 2: 'offset' must be a whole number"),
        (changed(1, lambda line: line.update(offset=2**63)), "line 2: it has a whole number of more than 64 bits"),
        (changed(1, lambda line: line.update(partition=True)), "line 2: 'partition' must be a whole number"),
        (changed(1, lambda line: line.update(topic_id="AAAA")), "line 2: 'AAAA' is no topic id"),
        (changed(1, lambda line: line.update(topic_id="\u00e9")), "line 2: 'é' is no topic id"),
        (changed(1, lambda line: line.update(group="")), "line 2: a group or a topic without a name"),
        (changed(1, lambda line: line.update(metadata=["x"])), "line 2: 'metadata' must be text"),
    ],
)
def test_damage_is_named_with_its_line(damaged: list[bytes], message: str) -> None:
    with pytest.raises(GroupFileError, match=message):
        read_file(damaged)


def test_a_line_and_a_file_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GroupFileError, match="line 2: it has 2,000,000 bytes"):
        read_file([lines(FILE)[0], b"{" + b" " * 1_999_998 + b"}"])
    monkeypatch.setattr(group_files, "MOST_OFFSETS", 1)
    with pytest.raises(GroupFileError, match="line 3: more than 1 offsets"):
        read_file(lines(FILE))


def test_the_csv_of_one_group_does_not_name_it_and_that_of_several_does() -> None:
    assert list(csv_lines(GroupFile([BILLING]))) == ["orders,0,5"]
    assert list(csv_lines(FILE)) == ["billing,orders,0,5", '"stock, or ""other""",orders,1,7']
    assert list(csv.reader(csv_lines(FILE)))[1][0] == STOCK.group


def test_the_csv_of_other_tools_is_read() -> None:
    read = read_file([b"orders,0,5\n", b'"orders",1,7\r\n', b"\n"])
    assert read.offsets == [FileOffset("", "orders", 0, 5), FileOffset("", "orders", 1, 7)]
    assert read_file([f"{line}\n".encode() for line in csv_lines(FILE)]).offsets == [
        FileOffset("billing", "orders", 0, 5),
        FileOffset(STOCK.group, "orders", 1, 7),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"orders,0\n", "line 1: expected topic,partition,offset, or a group before them"),
        (b"orders,0,5\nbilling,orders,0,5\n", "line 2: expected topic,partition,offset"),
        (b"orders,0,-5\n", "line 1: '-5' is no number"),
        (b"orders,0,9223372036854775808\n", "line 1: '9223372036854775808' is no number"),
        (b"orders,4294967296,1\n", "line 1: '4294967296' is no number"),
        (b"orders,0,5\n\norders,0,5\n", "line 3: '' has orders-0 twice"),
        (b"\x00\xff\xfe", "the file is not UTF-8, or no file of offsets"),
        (b'orders,"0,5\n', "the file is neither of Fencepost nor CSV"),
        (b"[1]\n", "line 1: expected topic,partition,offset"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(GroupFileError, match=message):
        read_file(content.splitlines(keepends=True))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(GroupFileError):
        assert isinstance(read_file(content.splitlines(keepends=True)), GroupFile)
