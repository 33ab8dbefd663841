"""Compiler of writers: one flat function per (message, version), which appends to a bytearray, fixed widths packed
together.

Record batches are not copied into it. A writer for a message with batches ends the current chunk, adds the batches as
a chunk of their own and starts another, so that they are sent as they are on disk.
"""

from struct import Struct
from types import FunctionType

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
    MAXIMUM_STRING_BYTES,
    RECORDS,
    STRING,
    EncodeError,
    FixedWidth,
    VariableWidth,
    write_unsigned_varint,
)

COPIED_RECORDS_BYTES = 1024
"""Records up to this size are copied, which is cheaper than one more chunk in the scatter list of the socket."""


def compile_writer(
    schema: MessageSchema, version: int, *, in_steps: bool = False
) -> tuple[FunctionType, list[CodePosition]]:
    """Make `write(message, out, chunks)` and, per line, the part of the message that the line writes.

    It appends to the bytearray `out`, and appends all chunks of the message to `chunks`, `out` first.
    in_steps: it is a generator, which yields after every struct of an array.
    """
    return _Writer(schema, version, in_steps=in_steps).compile()


FIELDS_FOR_PEOPLE = ("error_message", "status_detail")
"""Suffixes of fields that may quote a request: a text that is too long is shortened, and the reply sent."""
ELLIPSIS = "…".encode()


def shortened(text: bytes) -> bytes:
    """Shorten a text in UTF-8 to the length of a string field, cut between characters, with an ellipsis at the end."""
    return text[: MAXIMUM_STRING_BYTES - len(ELLIPSIS)].decode(errors="ignore").encode() + ELLIPSIS


class _Writer:
    def __init__(self, schema: MessageSchema, version: int, *, in_steps: bool) -> None:
        self._schema = schema
        self._version = version
        self._in_steps = in_steps
        self._flexible = version in schema.flexible
        how = " in steps" if in_steps else ""
        self._source = CodeWriter("def write(message, out, chunks):", f"write {schema.name} v{version}{how}")
        self._source.namespace |= {"EncodeError": EncodeError, "write_varint": write_unsigned_varint, "Struct": Struct}
        self._source.namespace["shortened"] = shortened
        self._out = "out"
        self._pending: list[
            tuple[str, str]
        ] = []  # format code, expression; the code "x" is a zero byte without expression
        self._pending_about: list[str] = []

    def compile(self) -> tuple[FunctionType, list[CodePosition]]:
        self._struct(self._schema, "message", "", depth=0)
        self._flush()
        self._source.add("chunks.append(out)")
        if self._in_steps:  # a generator, also if the message has no arrays
            self._source.add("yield")
        return self._source.compile("write"), self._source.positions

    def _pend(self, code: str, expression: str, about: str) -> None:
        self._pending.append((code, expression))
        if about:
            self._pending_about.append(about)

    def _flush(self) -> None:
        """Pack all pending values with one call."""
        pending, self._pending = self._pending, []
        about, self._pending_about = ", ".join(self._pending_about), []
        if not pending:
            return
        codes = "".join(code for code, _ in pending)
        expressions = ", ".join(expression for code, expression in pending if code != "x")
        if not expressions:
            self._source.add(f"{self._out} += {bytes(len(pending))!r}", about)
        else:
            self._source.add(f"{self._out} += {self._source.packed(codes, 'pack')}({expressions})", about)

    def _struct(self, schema: StructSchema, variable: str, path: str, depth: int) -> None:
        tagged = []
        for field in schema.fields:
            if self._version not in field.versions:
                continue
            if self._version in field.tagged:
                tagged.append(field)
                continue
            self._value(
                field.type, self._version in field.nullable, f"{variable}.{field.name}", path + field.name, depth
            )
        if self._flexible:
            if tagged:
                self._tagged_fields(sorted(tagged, key=lambda field: field.tag or 0), variable, path, depth)
            else:
                self._pend("x", "", "")

    def _value(self, wire_type: WireType, nullable: bool, value: str, path: str, depth: int) -> None:
        match wire_type:
            case FixedWidth():
                self._pend(wire_type.code, value, path)
            case VariableWidth():
                self._variable_width(wire_type, nullable, value, path)
            case ArrayOf():
                self._array(wire_type.element, nullable, value, path, depth)
            case StructOf():
                self._nested_struct(wire_type, nullable, value, path, depth)

    def _flush_in_branch(self, *last: tuple[str, str], about: str) -> None:
        """Pack all pending values with those of this branch; they stay pending for the next branch."""
        pending, pending_about = list(self._pending), list(self._pending_about)
        self._pending += last
        if about:
            self._pending_about.append(about)
        self._flush()
        self._pending, self._pending_about = pending, pending_about

    def _length(self, expression: str, code: str, about: str, maximum: int | None = None) -> None:
        """Write a length or count with all pending values; in a flexible version it is one too high, 0 for null."""
        if not self._flexible:
            self._pend(code, expression, about)
            self._flush()
            return
        source = self._source
        source.add(f"if {expression} < 128:", about)
        source.indent()
        if self._pending:
            self._flush_in_branch(("B", expression), about=about)
        else:
            source.add(f"{self._out}.append({expression})", about)
        source.dedent()
        source.add("else:")
        source.indent()
        if maximum is not None:
            source.add(f"if {expression} > {maximum + 1}:", about)
            source.add(f"    raise EncodeError('longer than {maximum} bytes')")
        self._flush()
        source.add(f"write_varint({self._out}, {expression})", about)
        source.dedent()

    def _variable_width(self, wire_type: VariableWidth, nullable: bool, value: str, path: str) -> None:
        source = self._source
        is_string = wire_type is STRING
        code = "h" if is_string else "i"
        if nullable:
            source.add(f"data = {value}", path)
            source.add("if data is None:")
            source.indent()
            self._flush_in_branch(("x", "") if self._flexible else (code, "-1"), about=path)
            source.dedent()
            source.add("else:")
            source.indent()
            if is_string:
                source.add("data = data.encode()", path)
        else:
            source.add(f"data = {value}.encode()" if is_string else f"data = {value}", path)
        if is_string and path.endswith(FIELDS_FOR_PEOPLE):
            source.add(f"if len(data) > {MAXIMUM_STRING_BYTES}:")
            source.add("    data = shortened(data)")
        source.add("length = len(data) + 1" if self._flexible else "length = len(data)", path)
        self._length("length", code, path, MAXIMUM_STRING_BYTES if is_string else None)
        if wire_type is RECORDS and self._out == "out":
            source.add(f"if len(data) > {COPIED_RECORDS_BYTES}:")
            source.add("    chunks += (out, data)")
            source.add("    out = bytearray()")
            source.add("else:")
            source.add("    out += data", path)
        else:
            source.add(f"{self._out} += data", path)
        if nullable:
            source.dedent()

    def _array(self, element: WireType, nullable: bool, value: str, path: str, depth: int) -> None:
        source = self._source
        path += "[]"
        items, item = f"items_{depth}", f"item_{depth}"
        source.add(f"{items} = {value}", path)
        if nullable:
            size = f"len({items}) + 1" if self._flexible else f"len({items})"
            source.add(f"count = {0 if self._flexible else -1} if {items} is None else {size}", path)
        else:
            source.add(f"count = len({items}){' + 1' if self._flexible else ''}", path)
        self._length("count", "i", path)
        if isinstance(element, FixedWidth) and len(element.code) == 1:
            source.add(f"if {items}:")
            source.add(f"    {self._out} += Struct(f'>{{len({items})}}{element.code}').pack(*{items})", path)
            return
        if nullable:
            source.add(f"if {items}:")
            source.indent()
        source.add(f"for {item} in {items}:", path)
        source.indent()
        if isinstance(element, StructOf):
            self._struct(struct_schema_of(element.python_class), item, path + ".", depth + 1)
        else:
            self._value(element, False, item, path, depth + 1)
        self._flush()
        if self._in_steps and isinstance(element, StructOf):
            source.add("yield", path)
        source.dedent()
        if nullable:
            source.dedent()

    def _nested_struct(
        self, wire_type: StructOf, nullable: bool, value: str, path: str, depth: int, *, null: int = NULL_STRUCT
    ) -> None:
        source = self._source
        item = f"item_{depth}"
        schema = struct_schema_of(wire_type.python_class)
        source.add(f"{item} = {value}", path)
        if not nullable:
            self._struct(schema, item, path + ".", depth + 1)
            self._flush()  # the next struct at this depth uses the same variable
            return
        self._flush()
        source.add(f"if {item} is None:")
        source.add(f"    {self._out}.append({null & 0xFF})")
        source.add("else:")
        source.indent()
        self._pend("b", "1", path)
        self._struct(schema, item, path + ".", depth + 1)
        self._flush()
        source.dedent()

    def _tagged_fields(self, fields: list[Field], variable: str, path: str, depth: int) -> None:
        """Write the tagged fields whose values differ from their defaults; Kafka never writes the others."""
        source, outer = self._source, self._out
        source.add(f"if {' and '.join(self._is_default(field, variable) for field in fields)}:", path)
        source.indent()
        self._flush_in_branch(("x", ""), about="")
        source.dedent()
        source.add("else:")
        source.indent()
        self._flush()
        tags, count = f"tags_{depth}", f"tag_count_{depth}"
        source.add(f"{count} = 0", path)
        for field in fields:
            value = f"{variable}.{field.name}"
            default = literal(field.default)
            if default is None:
                name = source.constant("default", field.default)
                source.add(f"if {value} is not {name} and {value} != {name}:", path + field.name)
            elif field.default is None:
                source.add(f"if {value} is not None:", path + field.name)
            else:
                source.add(f"if {value} != {default}:", path + field.name)
            source.indent()
            source.add(f"if not {count}:")
            source.add(f"    {tags} = bytearray()")
            source.add(f"{count} += 1")
            self._out = f"tagged_{depth}"
            source.add(f"{self._out} = bytearray()")
            nullable = self._version in field.nullable
            if isinstance(field.type, StructOf):
                self._nested_struct(field.type, nullable, value, path + field.name, depth + 1, null=NULL_TAGGED_STRUCT)
            else:
                self._value(field.type, nullable, value, path + field.name, depth + 1)
            self._flush()
            source.add(f"write_varint({tags}, {field.tag})")
            source.add(f"write_varint({tags}, len({self._out}))")
            source.add(f"{tags} += {self._out}")
            self._out = outer
            source.dedent()
        source.add(f"if {count}:")
        source.add(f"    write_varint({outer}, {count})")
        source.add(f"    {outer} += {tags}")
        source.add("else:")
        source.add(f"    {outer}.append(0)")
        source.dedent()

    def _is_default(self, field: Field, variable: str) -> str:
        """An expression that is true for nearly all values that can be left out."""
        default = literal(field.default)
        if default is None:
            return f"{variable}.{field.name} is {self._source.constant('default', field.default)}"
        if field.default is None:
            return f"{variable}.{field.name} is None"
        return f"{variable}.{field.name} == {default}"
