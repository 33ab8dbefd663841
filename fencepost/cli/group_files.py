"""Files with the committed offsets of groups, as `groups export` writes them, and Apache Kafka's CSV. Pure.

A file has one JSON object in each line: first its format, version and cluster; then one for each offset; at last the
number of them, so that a file that was cut is refused. docs/groups.md documents it. A reader ignores unknown keys;
another meaning gets another version.

The CSV is that of `kafka-consumer-groups --export`: topic,partition,offset for one group; of several, the group comes
first.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fencepost.cli.topic_choice import ZERO_ID, shown_id
from fencepost.protocol.checked_json import INT32_MAX, INT64_MAX, Fields, JsonError, parse_object, shown

FORMAT: Final = "fencepost-groups"
VERSION: Final = 1
LONGEST_LINE_BYTES: Final = 1 << 20
MOST_OFFSETS: Final = 2_000_000
ID_BYTES: Final = 16


class GroupFileError(ValueError):
    """The line and the fault."""


class FileOffset(NamedTuple):
    """A committed offset. topic_id: zeros if it is not known. leader_epoch: -1 if it is not known."""

    group: str
    topic: str
    partition: int
    offset: int
    topic_id: bytes = ZERO_ID
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True)
class GroupFile:
    """cluster_id, exported_at: None if the file does not have them. kinds: types by group."""

    offsets: Sequence[FileOffset]
    cluster_id: str | None = None
    exported_at: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(one.group for one in self.offsets))


def json_lines(file: GroupFile) -> Iterator[str]:
    """The lines of a file, without their ends."""
    yield _line({"format": FORMAT, "version": VERSION, "cluster_id": file.cluster_id, "exported_at": file.exported_at})
    for one in file.offsets:
        yield _line(
            {
                "group": one.group,
                "type": file.kinds.get(one.group),
                "topic": one.topic,
                "topic_id": shown_id(one.topic_id) if one.topic_id != ZERO_ID else None,
                "partition": one.partition,
                "offset": one.offset,
                "leader_epoch": one.leader_epoch if one.leader_epoch >= 0 else None,
                "metadata": one.metadata,
            }
        )
    yield _line({"end": True, "groups": len(file.groups()), "offsets": len(file.offsets)})


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content)  # in ASCII: no mark of writing direction shows an editor another order


def csv_lines(file: GroupFile) -> Iterator[str]:
    """As Apache Kafka's tool exports them: without groups if there is one."""
    several = len(file.groups()) > 1
    for one in file.offsets:
        row: list[str | int] = [one.topic, one.partition, one.offset]
        yield ",".join(map(_cell, [one.group, *row] if several else row))


def _cell(value: str | int) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(' ,"\r\n\t') or not text else text


def read_file(lines: Iterable[bytes]) -> GroupFile:
    """Read a file of either format. lines: with their ends. Raises GroupFileError."""
    numbered = iter(enumerate(lines, start=1))
    number, line = next((each for each in numbered if each[1].strip()), (0, b""))
    line = line.removeprefix(codecs.BOM_UTF8)  # editors of Windows begin a file with it
    if not line:
        raise GroupFileError("the file is empty: was its export refused?")
    if not line.lstrip().startswith(b"{"):
        return _read_csv([line, *(more for _, more in numbered)], number)
    header = _object(line, number)
    with _at(number):
        if header.value("format") != FORMAT:
            raise JsonError(f"its format is {shown(header.value('format'))}, not {FORMAT!r}")
        version = header.whole("version", 1)
        if version > VERSION:
            raise JsonError(f"its version is {version}; this Fencepost reads up to {VERSION}: use a newer one")
        file = GroupFile([], header.text_or_none("cluster_id"), header.text_or_none("exported_at"))
    return _read_offsets(file, numbered)


def _read_offsets(file: GroupFile, numbered: Iterator[tuple[int, bytes]]) -> GroupFile:
    offsets: dict[tuple[str, str, int], FileOffset] = {}
    kinds: dict[str, str] = {}
    ended = False
    number = 1
    for number, line in numbered:
        if not line.strip():
            continue
        found = _object(line, number)
        with _at(number):
            if ended:
                raise JsonError("there is more behind the line that says it is the last")
            if "end" in found:
                groups = len({group for group, _, _ in offsets})
                told = found.whole("groups"), found.whole("offsets")
                if told != (groups, len(offsets)):
                    raise JsonError(
                        f"the file has {groups} groups and {len(offsets)} offsets, and had {told[0]} and {told[1]}; "
                        "if you changed it, change these numbers, too"
                    )
                ended = True
                continue
            one = _offset(found)
            kind = found.text_or_none("type")
            if kind is not None:
                kinds[one.group] = kind
            _add(offsets, one)
    if not ended:
        raise GroupFileError(f"line {number} is the last, and does not say so: the file was cut")
    return GroupFile(list(offsets.values()), file.cluster_id, file.exported_at, kinds)


def _offset(found: Fields) -> FileOffset:
    group, topic = found.text("group"), found.text("topic")
    if not group or not topic:
        raise JsonError("a group or a topic without a name")
    topic_id = found.text_or_none("topic_id")
    epoch = found.whole_or_none("leader_epoch", 0, INT32_MAX)
    return FileOffset(
        group,
        topic,
        found.whole("partition", 0, INT32_MAX),
        found.whole("offset"),
        ZERO_ID if topic_id is None else _id_of(topic_id),
        -1 if epoch is None else epoch,
        found.text_or_none("metadata") or "",
    )


def _id_of(text: str) -> bytes:
    try:
        found = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != ID_BYTES:
        raise JsonError(f"{shown(text)} is no topic id")
    return found


def _add(offsets: dict[tuple[str, str, int], FileOffset], one: FileOffset) -> None:
    place = one.group, one.topic, one.partition
    if place in offsets:
        raise JsonError(f"{shown(one.group)} has {one.topic}-{one.partition} twice")
    if len(offsets) >= MOST_OFFSETS:
        raise JsonError(f"more than {MOST_OFFSETS:,} offsets")
    offsets[place] = one


def _read_csv(lines: Sequence[bytes], first: int) -> GroupFile:
    """A group is empty if the file does not name it."""
    offsets: dict[tuple[str, str, int], FileOffset] = {}
    try:
        rows = csv.reader([line.decode() for line in lines], strict=True)
        columns = 0
        for row in rows:
            with _at(first + rows.line_num - 1):
                if not row:
                    continue
                columns = columns or len(row)
                if len(row) != columns or columns not in (3, 4):
                    raise JsonError(f"expected topic,partition,offset, or a group before them; got {shown(row)}")
                *group, topic, partition, offset = row
                index, position = _number(partition, INT32_MAX), _number(offset, INT64_MAX)
                _add(offsets, FileOffset(group[0] if group else "", topic, index, position))
    except UnicodeDecodeError:
        raise GroupFileError("the file is not UTF-8, or no file of offsets") from None
    except csv.Error as error:
        raise GroupFileError(f"the file is neither of Fencepost nor CSV: {error}") from None
    return GroupFile(list(offsets.values()))


def _number(text: str, highest: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(INT64_MAX)) or int(text) > highest:
        raise JsonError(f"{shown(text)} is no number from 0 to {highest}")
    return int(text)


def _object(line: bytes, number: int) -> Fields:
    with _at(number):
        return parse_object(line.strip(), most_bytes=LONGEST_LINE_BYTES)


@contextmanager
def _at(number: int) -> Iterator[None]:
    """Name the line in errors."""
    try:
        yield
    except JsonError as error:
        raise GroupFileError(f"line {number}: {error}") from None
