"""Values in Protobuf: protoc compiles the schema, the library of Protobuf reads and writes by it.

A registry gives a schema as the text of a .proto file, or as a FileDescriptorProto in base64, as some serializers
register it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory

from fencepost.schemas.schema import Schema, SchemaError

OWN_NAME: Final = "fencepost_schema.proto"
LARGEST_NESTING: Final = 100


class ProtobufCodec:
    """Raises SchemaError for a schema that cannot be used."""

    def __init__(self, schema: Schema) -> None:
        files = {name: text for name, text in schema.dependencies if not name.startswith("google/protobuf/")}
        own, *others = _descriptors({**files, OWN_NAME: schema.text})
        pool = descriptor_pool.DescriptorPool()
        try:
            for one in others:
                pool.Add(one)
            pool.Add(own)
            self._file = pool.FindFileByName(own.name)
        except (TypeError, KeyError, ValueError) as error:
            raise _unreadable(str(error)) from None
        self._own, self._pool = own, pool

    def decode(self, content: bytes, indexes: tuple[int, ...]) -> Any:
        name = self._name(indexes)
        made = self._class(name)()
        try:
            made.ParseFromString(content)
            return json_format.MessageToDict(
                made,
                preserving_proto_field_name=True,
                descriptor_pool=self._pool,
                always_print_fields_with_no_presence=True,
            )
        except (message.DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"its bytes do not fit the Protobuf message {name}: {_line(str(error))}") from None

    def encode(self, value: Any, message: str) -> tuple[bytes, tuple[int, ...]]:
        names = dict(self._names())
        if not names:
            raise SchemaError("its Protobuf schema has no message")
        chosen = message or next(iter(names))
        if chosen not in names:
            chosen = f"{self._own.package}.{chosen}"
        if chosen not in names:
            raise SchemaError(f"its Protobuf schema has no message {message}; it has {', '.join(list(names)[:10])}")
        if not isinstance(value, Mapping):
            raise SchemaError(f"the value must be an object for the Protobuf message {chosen}")
        made = self._class(chosen)()
        try:
            json_format.ParseDict(value, made, descriptor_pool=self._pool, max_recursion_depth=LARGEST_NESTING)
            return made.SerializeToString(), names[chosen]
        except (json_format.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SchemaError(f"it does not fit the Protobuf message {chosen}: {_line(str(error))}") from None

    def _class(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def _name(self, indexes: tuple[int, ...]) -> str:
        found: Any = None
        name, messages = self._own.package, self._own.message_type
        for index in indexes:
            if not 0 <= index < len(messages):
                raise SchemaError(f"its Protobuf schema has no message with the indexes {list(indexes)}")
            found = messages[index]
            name, messages = f"{name}.{found.name}" if name else found.name, found.nested_type
        return str(name)

    def _names(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Full names of messages, and their indexes; those of a file before those within them."""

        def below(prefix: str, messages: Any, indexes: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
            for index, one in enumerate(messages):
                name = f"{prefix}.{one.name}" if prefix else one.name
                yield name, (*indexes, index)
                yield from below(name, one.nested_type, (*indexes, index))

        yield from below(self._own.package, self._own.message_type, ())


def _descriptors(files: dict[str, str]) -> list[Any]:
    """Descriptors: of OWN_NAME, then of all that it imports, each after its own imports. Raises SchemaError."""
    from grpc_tools import protoc

    described = {name: found for name, text in files.items() if (found := _from_base64(name, text)) is not None}
    with tempfile.TemporaryDirectory(prefix="fencepost-schema-") as folder:
        source, out = os.path.join(folder, "source"), os.path.join(folder, "out")
        os.mkdir(source)
        given = None
        for name, text in files.items():
            if name not in described:
                _write(source, name, text)
        arguments = ["protoc", f"--proto_path={source}", f"--proto_path={_well_known()}"]
        if described:
            given = os.path.join(folder, "described")
            with open(given, "wb") as file:
                file.write(descriptor_pb2.FileDescriptorSet(file=list(described.values())).SerializeToString())
            arguments.append(f"--descriptor_set_in={given}")
        arguments += [f"--descriptor_set_out={out}", "--include_imports", OWN_NAME]
        with _errors_to(os.path.join(folder, "errors")) as errors:
            if protoc.main(arguments) or not os.path.exists(out):
                raise _unreadable(errors() or "protoc gave no reason")
        with open(out, "rb") as file:
            found = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    return [found[-1], *found[:-1]]


def _from_base64(name: str, text: str) -> Any:
    try:
        made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    made.name = name
    return made


def _write(folder: str, name: str, text: str) -> None:
    place = os.path.normpath(os.path.join(folder, name))
    if not place.startswith(folder + os.sep) or "\0" in name:
        raise SchemaError(f"its Protobuf schema refers to {name!r}, which is no path within a project")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def _errors_to(path: str) -> Iterator[Any]:
    """The errors of protoc, which is no Python and writes them to standard error, in a file, for the person."""
    kept = os.dup(2)
    with open(path, "w+b") as file:
        os.dup2(file.fileno(), 2)

        def written() -> str:
            file.seek(0)
            text = file.read(4_000).decode("utf-8", "replace")
            text = "\n".join(line for line in text.split("\n") if not line.startswith(("WARNING:", "W0")))
            # The folder says nothing to the person, and neither does the name that the file has here.
            return text.replace(os.path.join(os.path.dirname(path), "source", ""), "").replace(f"{OWN_NAME}:", "line ")

        try:
            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _well_known() -> str:
    import grpc_tools

    return os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")


def _unreadable(reason: str) -> SchemaError:
    return SchemaError(f"its Protobuf schema cannot be read: {_line(reason)}")


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
