"""Messages as typed classes: declaration, encoding and decoding.

    @message(key=26, versions="0-5", flexible="3+")
    class EndTxnResponse:
        throttle_time_ms: int32 = 0
        error_code: int16 = 0
        producer_id: int64 = field(versions="5+", default=-1)

A reader and a writer are compiled on first use of a (message, version): see `protocol.reader` and `protocol.writer`.
"""

from collections.abc import Callable, Generator
from struct import error as struct_error
from types import CodeType, TracebackType
from typing import Any, TypeVar

from fencepost.protocol.code_writer import CodePosition
from fencepost.protocol.declaration import field, message, schema_of, struct
from fencepost.protocol.primitives import (
    ZERO_UUID,
    Buffer,
    DecodeError,
    EncodeError,
    MalformedError,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    uint16,
    uint32,
    uuid,
)
from fencepost.protocol.reader import compile_reader
from fencepost.protocol.writer import compile_writer

__all__ = [
    "ZERO_UUID",
    "Buffer",
    "DecodeError",
    "EncodeError",
    "decode",
    "encode",
    "encode_chunks",
    "field",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "message",
    "records",
    "schema_of",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

Message = TypeVar("Message")

_readers: dict[tuple[type[Any], int], Callable[[Buffer, int], Any]] = {}
_writers: dict[tuple[type[Any], int], Callable[[Any, bytearray, list[Buffer]], None]] = {}
_step_writers: dict[tuple[type[Any], int], Callable[[Any, bytearray, list[Buffer]], Generator[None, None, None]]] = {}
_positions: dict[CodeType, list[CodePosition]] = {}


def decode(message_type: type[Message], buffer: Buffer, version: int, position: int = 0) -> Message:
    """Read one message, which must end where the buffer ends; only after a request more bytes may follow, unread.

    `records` fields are slices of the buffer, not copied: the buffer must not change while they are used.
    Raises DecodeError for a message that is truncated, malformed, too long, or of a version not declared.
    """
    read = _readers.get((message_type, version))
    if read is None:
        read = _reader(message_type, version)
    try:
        return read(buffer, position)  # type: ignore[no-any-return]
    except (struct_error, IndexError, MalformedError, UnicodeDecodeError) as error:
        raise _undecodable(message_type, version, buffer, error) from None


def encode(message_object: Any, version: int) -> bytearray:
    """Write a message as one piece.

    Fields that the version does not have are left out. Raises EncodeError if a field cannot carry its value.
    """
    chunks = encode_chunks(message_object, version)
    if len(chunks) == 1:
        return chunks[0]  # type: ignore[return-value]  # a writer begins with the bytearray that it was given
    return bytearray().join(chunks)


def encode_chunks(message_object: Any, version: int, out: bytearray | None = None) -> list[Buffer]:
    """Write a message as chunks to send one after another; records, unless small, are chunks of their own, not copied.

    out: the start of the first chunk, e.g. a frame's header; the message is appended to it.
    """
    message_type = type(message_object)
    write = _writers.get((message_type, version))
    if write is None:
        write = _writer(message_type, version)
    chunks: list[Buffer] = []
    if out is None:
        out = bytearray()
    try:
        write(message_object, out, chunks)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        about, _ = _where(error.__traceback__)
        raise EncodeError(f"{message_type.__name__} v{version}: {about}: {error}") from error
    return chunks


def encode_chunks_in_steps(message_object: Any, version: int, out: bytearray) -> Generator[None, None, list[Buffer]]:
    """As `encode_chunks`, in steps: for a large message, with other requests in between.

    The message must not change meanwhile.
    """
    message_type = type(message_object)
    write = _step_writers.get((message_type, version))
    if write is None:
        write, positions = compile_writer(schema_of(message_type), version, in_steps=True)
        _positions[write.__code__] = positions
        _step_writers[message_type, version] = write
    chunks: list[Buffer] = []
    try:
        yield from write(message_object, out, chunks)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        about, _ = _where(error.__traceback__)
        raise EncodeError(f"{message_type.__name__} v{version}: {about}: {error}") from error
    return chunks


def _reader(message_type: type[Any], version: int) -> Callable[[Buffer, int], Any]:
    schema = schema_of(message_type)
    if version not in schema.versions:
        raise DecodeError(f"{schema.name} has no version {version}")
    read, positions = compile_reader(schema, version)
    _positions[read.__code__] = positions
    _readers[message_type, version] = read
    return read


def _writer(message_type: type[Any], version: int) -> Callable[[Any, bytearray, list[Buffer]], None]:
    schema = schema_of(message_type)
    if version not in schema.versions:
        raise EncodeError(f"{schema.name} has no version {version}")
    write, positions = compile_writer(schema, version)
    _positions[write.__code__] = positions
    _writers[message_type, version] = write
    return write


def _undecodable(message_type: type[Any], version: int, buffer: Buffer, error: Exception) -> DecodeError:
    expected, position = _where(error.__traceback__)
    size_bytes = len(buffer)
    detail = str(error) if isinstance(error, MalformedError | UnicodeDecodeError) else "the bytes end too early"
    return DecodeError(
        f"{message_type.__name__} v{version}: {detail}, at byte {min(position, size_bytes)} of {size_bytes}, "
        f"expected {expected}",
        position=position,
        expected=expected,
    )


def _where(traceback: TracebackType | None) -> tuple[str, int]:
    """The part of the message at which the generated function failed, and its position in the buffer."""
    while traceback is not None:
        positions = _positions.get(traceback.tb_frame.f_code)
        if positions is not None:
            about, variable, offset = positions[traceback.tb_lineno]
            return about, traceback.tb_frame.f_locals.get(variable, 0) + offset
        traceback = traceback.tb_next
    return "a message", 0
