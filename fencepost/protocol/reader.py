"""Compiler of readers: one flat function per (message, version).

The readers are fast because consecutive fields of fixed width, with the length or the count that follows them, are
unpacked by one `Struct.unpack_from` straight into the slots; nested structs are loops in the same function; no object
is made per field. A slice beyond the end is not checked at once: it moves the position beyond the end, and the next
read, or the comparison at the very end, fails.

The compiler knows the next byte as a variable and a distance in bytes: `position` is not increased for each field, only
at the join of branches that have read different numbers of bytes. A field of variable width sets the other one of
`position` and `end`.
"""

from collections.abc import Collection, Sequence
from itertools import repeat
from struct import Struct
from types import FunctionType
from typing import Final, NamedTuple

from fencepost.protocol.code_writer import CodePosition, CodeWriter, literal
from fencepost.protocol.declaration import (
    NULL_STRUCT,
    NULL_TAGGED_STRUCT,
    ArrayOf,
    Field,
    MessageSchema,
    StructOf,
    StructSchema,
    WireType,
    struct_schema_of,
)
from fencepost.protocol.primitives import (
    BYTES,
    MAXIMUM_STRING_BYTES,
    MAXIMUM_TAGGED_FIELDS,
    RECORDS,
    STRING,
    FixedWidth,
    MalformedError,
    VariableWidth,
    continue_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
)

MAXIMUM_REQUEST_ELEMENTS: Final = 250_000
"""Bound on the elements of all arrays of one request, and its tagged fields. Reading and answering them takes about a
second; a request for fifty thousand partitions has a quarter of them. Without a bound one frame of 100 MB, which is
allowed, would block all other clients for minutes."""


LENGTH_OF: Final = "the length of "


class Slot(NamedTuple):
    """A pending value of fixed width, unpacked together with its neighbours."""

    code: str
    target: str
    about: str


def compile_reader(schema: MessageSchema, version: int) -> tuple[FunctionType, list[CodePosition]]:
    """Make `read(buffer, position) -> message` and, per line, the part of the message that the line reads."""
    return _Reader(schema, version).compile()


def compile_locator(schema: MessageSchema, version: int, paths: Collection[str]) -> FunctionType:
    """Make `locate(buffer, position) -> [(path, where)]`: the positions of fields in an encoded message, in order.

    paths: fields of fixed width, or `records`, as `topics[].partitions[].fetch_offset`. Records are located by their
          length. Each element of an array has an entry of its own.
    """
    return _Reader(schema, version, located=frozenset(paths)).compile()[0]


def minimum_size_bytes(wire_type: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes that a value can take; bounds the count of an array before anything is allocated."""
    match wire_type:
        case FixedWidth():
            return wire_type.size_bytes
        case StructOf():
            size = int(flexible)
            for field in struct_schema_of(wire_type.python_class).fields:
                if version not in field.versions or version in field.tagged:
                    continue
                nullable_struct = isinstance(field.type, StructOf) and version in field.nullable
                size += 1 if nullable_struct else minimum_size_bytes(field.type, version, flexible)
            return size
        case _:
            if flexible:
                return 1
            return 2 if wire_type is STRING else 4


class _Reader:
    """One function under construction. located: the paths of the fields whose positions it returns, not the message."""

    def __init__(self, schema: MessageSchema, version: int, located: Collection[str] | None = None) -> None:
        self._located = located
        self._schema = schema
        self._version = version
        self._flexible = version in schema.flexible
        self._source = CodeWriter("def read(buffer, position):", f"read {schema.name} v{version}")
        self._source.namespace |= {
            "new": object.__new__,
            "MalformedError": MalformedError,
            "continue_varint": continue_unsigned_varint,
            "read_varint": read_unsigned_varint,
            "repeat": repeat,
            "skip_tagged_fields": skip_tagged_fields,
            "Struct": Struct,
        }
        self._pending: list[Slot] = []

    def compile(self) -> tuple[FunctionType, list[CodePosition]]:
        source = self._source
        # Records should be views, which slices of a view are; all other fields are read faster from bytes.
        carries_records = any(field.type is RECORDS for field in self._schema.all_fields())
        source.add(f"buffer = {'memoryview' if carries_records else 'bytes'}(buffer)")
        source.add("limit = len(buffer)")
        if self._located is not None:
            source.add("located = []")
        if self._schema.is_request:
            source.add(f"elements_left = {MAXIMUM_REQUEST_ELEMENTS}")
        self._struct(self._schema, "message", "", depth=0)
        self._flush()
        # Kafka ignores bytes after a request's last field, and librdkafka leaves some there: its Metadata request
        # for all topics reserves four bytes for the array's length and shortens only the arrays that are not null.
        comparison = ">" if self._schema.is_request else "!="
        source.add(f"if {self._next_byte} {comparison} limit:", "the end")
        source.add("    raise MalformedError('the message ends before its bytes do, or behind them')")
        source.add("return message" if self._located is None else "return located")
        return source.compile("read"), source.positions

    @property
    def _next_byte(self) -> str:
        """The position of the next byte, as an expression."""
        source = self._source
        return f"{source.variable} + {source.offset}" if source.offset else source.variable

    def _settle(self) -> None:
        """Make `position` the position of the next byte, in all branches."""
        source = self._source
        if source.variable != "position":
            source.add(f"position = {self._next_byte}")
        elif source.offset:
            source.add(f"position += {source.offset}")
        source.variable, source.offset = "position", 0

    def _keep_distance(self) -> None:
        """Set the variable to the distance from the next byte that the common branch has; this one is rare."""
        if self._source.offset:
            self._source.add(f"{self._source.variable} -= {self._source.offset}")

    def _flush(self) -> None:
        """Unpack all pending values with one call."""
        slots, self._pending = self._pending, []
        if not slots:
            return
        about = ", ".join(slot.about for slot in slots)
        if len(slots) == 1 and slots[0].code == "B":
            self._source.add(f"{slots[0].target} = buffer[{self._next_byte}]", about)
            self._note_positions(slots)
            self._source.offset += 1
            return
        codes = "".join(slot.code for slot in slots)
        targets = ", ".join(slot.target for slot in slots) + ("," if len(slots) == 1 else "")
        skipped = f"{self._source.offset}x" if self._source.offset else ""
        unpack = self._source.packed(skipped + codes, "unpack_from")
        self._source.add(f"{targets} = {unpack}(buffer, {self._source.variable})", about)
        self._note_positions(slots)
        self._source.offset += Struct(">" + codes).size

    def _note_positions(self, slots: Sequence[Slot]) -> None:
        """Note the positions of the values that have just been unpacked, if the caller wants to know."""
        distance = self._source.offset
        for slot in slots:
            path = slot.about.removeprefix(LENGTH_OF)
            if self._located is not None and path in self._located:
                self._source.add(f"located.append(({path!r}, {self._source.variable} + {distance}))")
            distance += Struct(">" + slot.code).size

    def _struct(self, schema: StructSchema, variable: str, path: str, depth: int) -> None:
        class_name = self._source.constant("Class", schema.python_class)
        self._source.add(f"{variable} = new({class_name})", path.rstrip(".") or schema.name)
        self._fields(schema, variable, path, depth)

    def _fields(self, schema: StructSchema, variable: str, path: str, depth: int) -> None:
        tagged = []
        for field in schema.fields:
            if self._version in field.versions and self._version not in field.tagged:
                self._value(
                    field.type, self._version in field.nullable, f"{variable}.{field.name}", path + field.name, depth
                )
                continue
            if self._version in field.versions:
                tagged.append(field)
            default = literal(field.default) or self._source.constant("default", field.default)
            self._source.add(f"{variable}.{field.name} = {default}")
        if self._flexible:
            self._tagged_fields(sorted(tagged, key=lambda field: field.tag or 0), variable, path, depth)

    def _value(self, wire_type: WireType, nullable: bool, target: str, path: str, depth: int) -> None:
        match wire_type:
            case FixedWidth():
                self._pending.append(Slot(wire_type.code, target, path))
            case VariableWidth():
                self._variable_width(wire_type, nullable, target, path)
            case ArrayOf():
                self._array(wire_type.element, nullable, target, path, depth)
            case StructOf():
                self._nested_struct(wire_type, nullable, target, path, depth)

    def _length(self, variable: str, code: str, path: str, maximum: int | None = None) -> None:
        """Read a length or count; in a flexible version it is one too high, with 0 for null."""
        self._pending.append(Slot("B" if self._flexible else code, variable, f"{LENGTH_OF}{path}"))
        self._flush()
        if self._flexible:
            source = self._source
            source.add(f"if {variable} > 127:")
            source.indent()
            source.add(f"{variable}, {source.variable} = continue_varint(buffer, {self._next_byte}, {variable})")
            self._keep_distance()
            if maximum is not None:
                source.add(f"if {variable} > {maximum + 1}:")
                source.add(f"    raise MalformedError('longer than {maximum} bytes')")
            source.dedent()

    def _unless_null(self, variable: str, path: str) -> None:
        """Branch on null; the lines for a value follow, indented."""
        self._source.add(f"if {variable}:" if self._flexible else f"if {variable} >= 0:", path)
        self._source.indent()

    def _end_unless_null(self, variable: str, nullable: bool, target: str, *further_lines: str) -> None:
        source = self._source
        source.dedent()
        lines = (f"{target} = None", *further_lines)
        if nullable and self._flexible:
            source.add("else:")
            for line in lines:
                source.add(f"    {line}")
        elif nullable:
            source.add(f"elif {variable} == -1:")
            for line in lines:
                source.add(f"    {line}")
            source.add("else:")
            source.add(f"    raise MalformedError(f'a length of {{{variable}}}')")
        else:
            source.add("else:")
            source.add("    raise MalformedError('null is not allowed')")

    def _variable_width(self, wire_type: VariableWidth, nullable: bool, target: str, path: str) -> None:
        source = self._source
        is_string = wire_type is STRING
        self._length("length", "h" if is_string else "i", path, MAXIMUM_STRING_BYTES if is_string else None)
        self._unless_null("length", path)
        end = "end" if source.variable == "position" else "position"
        distance = source.offset - 1 if self._flexible else source.offset
        source.add(f"{end} = {source.variable} + length{f' + {distance}' if distance else ''}", path)
        content = f"buffer[{self._next_byte}:{end}]"
        if is_string:
            source.add(f"{target} = str({content}, 'utf-8')", path)
        elif wire_type is BYTES:
            source.add(f"{target} = bytes({content})", path)
        else:
            assert wire_type is RECORDS
            source.add(f"{target} = {content}", path)
        self._end_unless_null("length", nullable, target, f"{end} = {self._next_byte}")
        source.variable, source.offset = end, 0

    def _array(self, element: WireType, nullable: bool, target: str, path: str, depth: int) -> None:
        source = self._source
        path += "[]"
        count, items, item = f"count_{depth}", f"items_{depth}", f"item_{depth}"
        self._length(count, "i", path)
        self._settle()
        source.add(f"if {count} > {int(self._flexible)}:", path)
        source.indent()
        if self._flexible:
            source.add(f"{count} -= 1")
        size_bytes = minimum_size_bytes(element, self._version, self._flexible)
        source.add(
            f"if {count} * {size_bytes} > limit - position:" if size_bytes > 1 else f"if {count} > limit - position:"
        )
        source.add(f"    raise MalformedError(f'{{{count}}} elements do not fit into {{limit - position}} bytes')")
        self._count_elements(count)
        if isinstance(element, FixedWidth) and len(element.code) == 1:
            source.add(f"{target} = list(Struct(f'>{{{count}}}{element.code}').unpack_from(buffer, position))")
            source.add(f"position += {count} * {element.size_bytes}")
        elif isinstance(element, StructOf):
            class_name = source.constant("Class", element.python_class)
            source.add(f"{items} = list(map(new, repeat({class_name}, {count})))")
            source.add(f"for {item} in {items}:")
            source.indent()
            self._fields(struct_schema_of(element.python_class), item, path + ".", depth + 1)
            self._flush()
            self._settle()
            source.dedent()
            source.add(f"{target} = {items}")
        else:
            source.add(f"{items} = []")
            source.add(f"for _ in range({count}):")
            source.indent()
            self._value(element, False, item, path, depth + 1)
            self._flush()
            self._settle()
            source.add(f"{items}.append({item})")
            source.dedent()
            source.add(f"{target} = {items}")
        source.dedent()
        source.add(f"elif {count} == {int(self._flexible)}:", path)
        source.indent()
        source.add(f"{target} = []")
        self._end_unless_null(count, nullable, target)

    def _count_elements(self, count: str) -> None:
        """Count elements, of requests only: replies come from brokers, and stored messages were bounded on arrival."""
        if self._schema.is_request:
            self._source.add(f"elements_left -= {count}")
            self._source.add("if elements_left < 0:")
            self._source.add(f"    raise MalformedError('a request of more than {MAXIMUM_REQUEST_ELEMENTS} elements')")

    def _nested_struct(
        self, wire_type: StructOf, nullable: bool, target: str, path: str, depth: int, *, null: int = NULL_STRUCT
    ) -> None:
        source = self._source
        item = f"item_{depth}"
        schema = struct_schema_of(wire_type.python_class)
        if not nullable:
            self._struct(schema, item, path + ".", depth + 1)
            self._flush()
            source.add(f"{target} = {item}")
            return
        self._pending.append(Slot("b", "present", path))
        self._flush()
        self._settle()
        source.add(f"if present != {null}:")
        source.indent()
        self._struct(schema, item, path + ".", depth + 1)
        self._flush()
        self._settle()
        source.add(f"{target} = {item}")
        source.dedent()
        source.add("else:")
        source.add(f"    {target} = None")

    def _tagged_fields(self, fields: list[Field], variable: str, path: str, depth: int) -> None:
        source = self._source
        about = f"tagged fields of {path.rstrip('.') or self._schema.name}"
        tag, count, end = f"tag_{depth}", f"tag_count_{depth}", f"tag_end_{depth}"
        if self._pending:
            self._pending.append(Slot("B", count, about))
            self._flush()
            source.add(f"if {count}:", about)
            source.indent()
        else:
            byte = f"buffer[{self._next_byte}]"
            source.add(f"if {byte}:", about)
            source.indent()
            source.add(f"{count} = {byte}")
            source.offset += 1
        self._count_elements(count)
        if not fields:
            source.add(f"{source.variable} = skip_tagged_fields(buffer, {self._next_byte}, {count})")
            self._keep_distance()
            source.dedent()
            return
        before = source.variable, source.offset
        self._settle()
        source.add(f"if {count} > 127:")
        source.add(f"    {count}, position = continue_varint(buffer, position, {count})")
        source.add(f"if {count} * 2 > limit - position:")
        source.add(f"    raise MalformedError(f'{{{count}}} tagged fields do not fit into {{limit - position}} bytes')")
        source.add(f"if {count} > {MAXIMUM_TAGGED_FIELDS}:")
        source.add(f"    raise MalformedError(f'{{{count}}} tagged fields, at most {MAXIMUM_TAGGED_FIELDS} are read')")
        source.add(f"for _ in range({count}):")
        source.indent()
        source.add(f"{tag}, position = read_varint(buffer, position)", about)
        source.add(f"{end}, position = read_varint(buffer, position)")
        source.add(f"{end} += position")
        for number, field in enumerate(fields):
            source.add(f"{'el' if number else ''}if {tag} == {field.tag}:")
            source.indent()
            nullable, target = self._version in field.nullable, f"{variable}.{field.name}"
            if isinstance(field.type, StructOf):
                self._nested_struct(field.type, nullable, target, path + field.name, depth + 1, null=NULL_TAGGED_STRUCT)
            else:
                self._value(field.type, nullable, target, path + field.name, depth + 1)
            self._flush()
            self._settle()
            source.add(f"if position != {end}:", path + field.name)
            source.add("    raise MalformedError('the tagged field has another size than it says')")
            source.dedent()
        source.add("else:", about)
        source.add(f"    position = {end}")
        source.dedent()
        source.variable, source.offset = before
        if source.variable != "position":
            source.add(f"{source.variable} = position - {source.offset}")
        else:
            self._keep_distance()
        source.dedent()
