"""Shapes of requests and forms of replies: the constant bytes of messages that repeat, and the fields that vary.

A client sends the same few requests again and again, and only some of their fields differ: the batch of a Produce, the
offset of a Fetch. A shape splits a frame at these fields, so that the constant bytes find the earlier request. A form
writes the reply by putting the varying fields between constant bytes. Positions of fields come from readers compiled
from the message declarations. Messages are read from left to right: equal bytes before a field leave it where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.protocol.declaration import ArrayOf, MessageSchema, StructOf, StructSchema, schema_of, struct_schema_of
from fencepost.protocol.framing import LENGTH_BYTES, response_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.primitives import RECORDS, Buffer, FixedWidth, continue_unsigned_varint, write_unsigned_varint
from fencepost.protocol.reader import compile_locator
from fencepost.protocol.writer import COPIED_RECORDS_BYTES

CORRELATION_ID_POSITION: Final = 4
"""In a frame of a request, without its length, and in a frame of a reply, with its length."""
_CORRELATION_ID_END: Final = CORRELATION_ID_POSITION + 4
THROTTLE: Final = "throttle_time_ms"

Records = TypeVar("Records")

_INT32: Final = Struct(">i")
_pack_int32 = _INT32.pack_into
_unpack_int32 = _INT32.unpack_from


class VaryingField(NamedTuple):
    """A field of one message object: `setattr(owner, name, value)` gives it another value."""

    owner: Any
    name: str


class RecordsField(NamedTuple):
    """A field with record batches, and the constant bytes between it and the next one, or the end of the frame."""

    owner: Any
    name: str
    following: bytes


class RequestShape(NamedTuple):
    """A request that others may repeat.

    struct: splits a frame, without its length, into constant bytes and fixed-width fields in turns. The first field is
        the correlation id. With records, it ends before the first of them.
    key: the constant bytes, in order.
    fields: the fields of fixed width, without the correlation id.
    """

    struct: Struct
    key: tuple[bytes, ...]
    fields: tuple[VaryingField, ...]
    records: tuple[RecordsField, ...]


def shape_of(
    frame: memoryview,
    body_position: int,
    request: Any,
    version: int,
    paths: tuple[str, ...],
    *,
    maximum_records: int = 1_000,
) -> RequestShape | None:
    """Find the shape of a decoded request; None if records that vary are null in it, or more than `maximum_records`.

    frame: the request without its length.
    paths: the fields that vary; those that the version does not have are ignored. Records come after all others.
    """
    codes = field_codes(type(request), version)
    found = {path: _owners(request, path) for path in paths}
    if any(codes.get(path) == RECORDS.name and len(fields) > maximum_records for path, fields in found.items()):
        return None
    owners = {path: iter(fields) for path, fields in found.items()}
    fields, marks = [], [(CORRELATION_ID_POSITION, "i")]
    records: list[tuple[Any, str, int, int]] = []
    is_flexible = version in schema_of(type(request)).flexible
    for path, position in _locator(type(request), version, paths)(frame, body_position):
        field = next(owners[path])
        if codes[path] != RECORDS.name:
            assert not records, "records come last"
            fields.append(field)
            marks.append((position, codes[path]))
            continue
        if getattr(*field) is None:
            return None
        _, end = records_range(frame, position, is_flexible=is_flexible)
        records.append((field.owner, field.name, position, end))
    size_bytes = records[0][2] if records else len(frame)
    struct = _splitter(size_bytes, *marks)
    ends = [*(position for _, _, position, _ in records[1:]), len(frame)]
    return RequestShape(
        struct,
        struct.unpack_from(frame)[::2],
        tuple(fields),
        tuple(
            RecordsField(owner, name, bytes(frame[end:next_position]))
            for (owner, name, _, end), next_position in zip(records, ends, strict=True)
        )
        if records
        else (),
    )


def records_range(buffer: memoryview, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """Return start and end of records whose length is at `position`; an end before the start for null.

    Raises struct.error, IndexError, MalformedError if the buffer has no length there.
    """
    if is_flexible:
        length = buffer[position]
        start = position + 1
        if length > 0x7F:
            length, start = continue_unsigned_varint(buffer, start, length)
        return start, start + length - 1
    (length,) = _unpack_int32(buffer, position)
    start = position + LENGTH_BYTES
    return start, start + length


class ReplyForm:
    """The reply to a request that repeats: the constant bytes, and the positions of its varying fields.

    Made from one reply. The caller vouches that others differ from it only in these fields.
    """

    __slots__ = (
        "_groups",
        "_is_flexible",
        "_pack_values",
        "_parts",
        "_position",
        "_tail",
        "_template",
        "_throttle_position",
    )

    def __init__(self, response: Any, version: int, paths: tuple[str, ...]) -> None:
        """Find the form of a response, which is changed: it loses its records.

        paths: the fields that vary, in the order of the message, all of them in this version; records come last.
        """
        message_type = type(response)
        codes = field_codes(message_type, version)
        for path in paths:
            if codes[path] == RECORDS.name:
                for owner, name in _owners(response, path):
                    setattr(owner, name, b"")
        reply = b"".join(response_frame(0, response, version))
        start = LENGTH_BYTES + 4 + response_header_version(message_type.api_key, version)
        located = _locator(message_type, version, (*paths, THROTTLE))(reply, start)
        self._throttle_position = next((position for path, position in located if path == THROTTLE), None)
        self._is_flexible = version in schema_of(message_type).flexible
        self._template, self._tail = reply, b""
        marks = [(position, codes[path]) for path, position in located if path != THROTTLE]
        if marks and marks[-1][1] == RECORDS.name:
            position, _ = marks.pop()
            _, end = records_range(memoryview(reply), position, is_flexible=self._is_flexible)
            self._template, self._tail = reply[:position], reply[end:]
        self._groups = _groups(marks)
        self._parts: tuple[Callable[..., bytes], int, bytes, bytes] | None = None
        self._pack_values: Callable[..., None] | None = None  # if there is one group
        if len(self._groups) == 1:
            self._pack_values, self._position = self._groups[0].struct.pack_into, self._groups[0].position

    def write(
        self, correlation_id: int, values: Sequence[Any], throttle_ms: int = 0, records: Records | None = None
    ) -> Sequence[Buffer | Records]:
        """Write a reply as chunks to send one after another.

        values: those of the varying fields, in the order of the message.
        records: present in a form with records; anything with a length if it is longer than COPIED_RECORDS_BYTES.
        """
        out = bytearray(self._template)
        _pack_int32(out, CORRELATION_ID_POSITION, correlation_id)
        if self._pack_values is not None:
            self._pack_values(out, self._position, *values)
        else:
            for struct, position, first, end in self._groups:
                struct.pack_into(out, position, *values[first:end])
        if throttle_ms and self._throttle_position is not None:
            _pack_int32(out, self._throttle_position, throttle_ms)
        if records is None:
            return (out,)
        size_bytes, tail = len(records), self._tail  # type: ignore[arg-type]
        if self._is_flexible:
            write_unsigned_varint(out, size_bytes + 1)
        else:
            out += _INT32.pack(size_bytes)
        _pack_int32(out, 0, len(out) + size_bytes + len(tail) - LENGTH_BYTES)
        if size_bytes > COPIED_RECORDS_BYTES:
            return (out, records, tail)
        out += records  # type: ignore[arg-type]
        out += tail
        return (out,)

    def write_all(self, correlation_ids: Sequence[int], *columns: Iterable[Any], throttle_ms: int = 0) -> bytes:
        """Write the replies to requests that were carried out together, one behind the other.

        columns: the values of each varying field; they are next to each other in the message, and there are no records.
        """
        parts = self._parts
        if parts is None or throttle_ms:
            parts = self._split(throttle_ms)
        pack, size_bytes, before, behind = parts
        return b"".join(map(pack, repeat(size_bytes), correlation_ids, repeat(before), *columns, repeat(behind)))

    def _split(self, throttle_ms: int) -> tuple[Callable[..., bytes], int, bytes, bytes]:
        """Split the template at its varying fields; kept for replies without a throttle."""
        ((struct, position, _, _),) = self._groups
        template = bytearray(self._template)
        if throttle_ms and self._throttle_position is not None:
            _pack_int32(template, self._throttle_position, throttle_ms)
        before, behind = bytes(template[_CORRELATION_ID_END:position]), bytes(template[position + struct.size :])
        pack = _reply_struct(len(before), struct.format[1:], len(behind)).pack
        parts = pack, len(template) - LENGTH_BYTES, before, behind
        if not throttle_ms:
            self._parts = parts
        return parts


def field_codes(message_type: type[Any], version: int) -> dict[str, str]:
    """Return the `struct` format codes of the fields that the version has, by path; "records" for record batches.

    Strings, bytes and tagged fields are left out.
    """
    codes = _codes.get((message_type, version))
    if codes is None:
        codes = _codes[message_type, version] = dict(_walk(schema_of(message_type), version, ""))
    return codes


_codes: dict[tuple[type[Any], int], dict[str, str]] = {}


def _walk(schema: StructSchema | MessageSchema, version: int, prefix: str) -> Iterator[tuple[str, str]]:
    for field in schema.fields:
        if version not in field.versions or version in field.tagged:
            continue
        path, inner = prefix + field.name, field.type
        if isinstance(inner, ArrayOf):
            path, inner = path + "[]", inner.element
        if isinstance(inner, StructOf):
            yield from _walk(struct_schema_of(inner.python_class), version, path + ".")
        elif isinstance(inner, FixedWidth):
            yield path, inner.code
        elif inner is RECORDS:
            yield path, RECORDS.name


_locators: dict[tuple[type[Any], int, tuple[str, ...]], Callable[[Buffer, int], list[tuple[str, int]]]] = {}


def _locator(
    message_type: type[Any], version: int, paths: tuple[str, ...]
) -> Callable[[Buffer, int], list[tuple[str, int]]]:
    """The function that locates the paths; a message has few sets of them."""
    found = _locators.get((message_type, version, paths))
    if found is None:
        found = _locators[message_type, version, paths] = compile_locator(schema_of(message_type), version, paths)
    return found


def _owners(message: Any, path: str) -> list[VaryingField]:
    """The fields of a message at a path, one for each element of the arrays on it."""
    *steps, name = path.split(".")
    owners = [message]
    for step in steps:
        array = step.removesuffix("[]")
        owners = [inner for owner in owners for inner in getattr(owner, array) or ()]
    return [VaryingField(owner, name) for owner in owners]


@lru_cache(maxsize=256)
def _splitter(size_bytes: int, *marks: tuple[int, str]) -> Struct:
    """The Struct that splits a frame at marked fields. Connections share it."""
    parts = [">"]
    end = 0
    for position, code in marks:
        parts.append(f"{position - end}s{code}")
        end = position + Struct(">" + code).size
    return Struct(f"{''.join(parts)}{size_bytes - end}s")


@lru_cache(maxsize=256)
def _reply_struct(before_bytes: int, codes: str, behind_bytes: int) -> Struct:
    return Struct(f">ii{before_bytes}s{codes}{behind_bytes}s")


class _Group(NamedTuple):
    """Varying fields next to each other: the first and the end of their values."""

    struct: Struct
    position: int
    first: int
    end: int


def _groups(marks: Sequence[tuple[int, str]]) -> tuple[_Group, ...]:
    groups: list[_Group] = []
    for index, (position, code) in enumerate(marks):
        if groups and groups[-1].position + groups[-1].struct.size == position:
            struct, first_position, first, _ = groups[-1]
            groups[-1] = _Group(Struct(struct.format + code), first_position, first, index + 1)
        else:
            groups.append(_Group(Struct(">" + code), position, index, index + 1))
    return tuple(groups)
