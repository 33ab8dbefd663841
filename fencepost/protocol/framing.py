"""Frames of requests and replies: an int32 with the length of the rest, a header and a message."""

from collections.abc import Callable, Generator
from struct import Struct
from typing import Any, NamedTuple

from fencepost.protocol.headers import (
    encode_request_header,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.schema import encode, encode_chunks, encode_chunks_in_steps

_LENGTH = Struct(">i")

LENGTH_BYTES = _LENGTH.size

unpack_length = _LENGTH.unpack_from
"""Unpack the length of the frame at a position in a buffer, by default the first, into a tuple, unchecked."""

_REPLY_STARTS = (Struct(">ii").pack, Struct(">iix").pack)
"""By header version: length, correlation id and, from version 1 on, an empty set of tagged fields."""

_reply_starts: dict[tuple[type[Any], int], Callable[[int, int], bytes]] = {}


class EqualLengthFrames(NamedTuple):
    """Whole frames of one length, back to back; `frame_bytes` is the size of each, with its length prefix."""

    buffer: memoryview
    frame_bytes: int

    @property
    def first(self) -> memoryview:
        """The first frame, without its length prefix."""
        return self.buffer[LENGTH_BYTES : self.frame_bytes]


def find_frame(
    buffer: Buffer, position: int, end: int, maximum_bytes: int, minimum_bytes: int = 0
) -> tuple[int, int] | None:
    """Return start and end of the contents of the frame at `position` in a buffer filled up to `end`.

    None until the whole frame has arrived.
    Raises DecodeError for a length below `minimum_bytes` or above `maximum_bytes`: the rest can not be trusted, and
    the caller has to close the connection.
    """
    start = position + LENGTH_BYTES
    if start > end:
        return None
    frame_end = start + read_frame_length(buffer, position, maximum_bytes, minimum_bytes)
    return None if frame_end > end else (start, frame_end)


def read_frame_length(buffer: Buffer, position: int, maximum_bytes: int, minimum_bytes: int = 0) -> int:
    """Return the length of the frame at `position`; only its length prefix need have arrived.

    Raises DecodeError as `find_frame` does.
    """
    length: int
    (length,) = _LENGTH.unpack_from(buffer, position)
    if not minimum_bytes <= length <= maximum_bytes:
        raise DecodeError(
            f"a frame of {length} bytes, where {minimum_bytes} to {maximum_bytes} are allowed",
            position=position,
            expected="frame length",
        )
    return length


def response_frame(correlation_id: int, response: Any, version: int) -> list[Buffer]:
    """Encode a reply as chunks to send one after another: length, header and message; records are not copied."""
    message_type = type(response)
    reply_start = _reply_starts.get((message_type, version))
    if reply_start is None:
        reply_start = _new_reply_start(message_type, version)
    out = bytearray(reply_start(0, correlation_id))
    chunks = encode_chunks(response, version, out)
    size_bytes = len(out) if len(chunks) == 1 else sum(map(len, chunks))
    _LENGTH.pack_into(out, 0, size_bytes - LENGTH_BYTES)
    return chunks


def response_frame_in_slices(correlation_id: int, response: Any, version: int) -> Generator[None, None, list[Buffer]]:
    """As `response_frame`, in time slices; see `encode_chunks_in_steps`."""
    message_type = type(response)
    reply_start = _reply_starts.get((message_type, version)) or _new_reply_start(message_type, version)
    out = bytearray(reply_start(0, correlation_id))
    chunks = yield from encode_chunks_in_steps(response, version, out)
    _LENGTH.pack_into(out, 0, sum(map(len, chunks)) - LENGTH_BYTES)
    return chunks


def _new_reply_start(message_type: type[Any], version: int) -> Callable[[int, int], bytes]:
    start = _REPLY_STARTS[response_header_version(message_type.api_key, version)]
    _reply_starts[message_type, version] = start
    return start


def request_frame(correlation_id: int, client_id: str | None, request: Any, version: int) -> bytes:
    """Encode a request with length and header."""
    api_key: int = request.api_key
    header_version = request_header_version(api_key, version)
    header = encode_request_header(api_key, version, correlation_id, client_id, header_version)
    body = encode(request, version)
    return b"".join((_LENGTH.pack(len(header) + len(body)), header, body))
