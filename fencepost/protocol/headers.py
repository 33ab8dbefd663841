"""Headers of requests and replies.

A request's header is version 1 or, with tagged fields, version 2 in the flexible versions of its API; version 0,
without client id, was only ever used by ControlledShutdown 0. A reply's is version 0 or, with tagged fields, version 1.
Two rules break the symmetry: `client_id` is never compact, and the reply to ApiVersions always has header version 0,
because a client reads it before the two sides have agreed on anything (KIP-482, KIP-511).
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.primitives import Buffer, DecodeError, MalformedError, skip_tagged_fields
from fencepost.protocol.schema import schema_of

_REQUEST_START = Struct(">hhi")
_REQUEST_START_AND_CLIENT_ID_LENGTH = Struct(">hhih")
_CLIENT_ID_LENGTH = Struct(">8xh")
_CLIENT_ID_POSITION = _CLIENT_ID_LENGTH.size
_CORRELATION_ID = Struct(">i")

REQUEST_START_BYTES = _REQUEST_START.size
"""API key, API version and correlation id: the bytes without which no reply is possible."""


class RequestHeader(NamedTuple):
    """Header of a request. `body_position`: start of the request itself in the buffer, in bytes."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_start(buffer: Buffer) -> tuple[int, int, int]:
    """Read API key, API version and correlation id. All header versions begin with them; they suffice to read on, or to
    refuse.

    Raises DecodeError when the buffer has fewer than 8 bytes.
    """
    try:
        return _REQUEST_START.unpack_from(buffer)
    except struct_error:
        message = f"{len(buffer)} bytes are too few for a request header"
        raise DecodeError(message, position=0, expected="request header") from None


def read_request_header(buffer: Buffer, header_version: int) -> RequestHeader:
    """Read the header at the start of a frame (without its length prefix). Tagged fields are skipped.

    header_version: see `request_header_version`.
    Raises DecodeError.
    """
    client_id, body_position = read_client_id(buffer, header_version)
    return RequestHeader(*read_request_start(buffer), client_id, body_position)


def read_client_id(buffer: Buffer, header_version: int) -> tuple[str | None, int]:
    """Read the rest of a request's header; return the client id and the position of the request itself.

    Raises DecodeError.
    """
    if header_version == 0:
        return None, REQUEST_START_BYTES
    try:
        (length,) = _CLIENT_ID_LENGTH.unpack_from(buffer)
        if length >= 0:
            position = _CLIENT_ID_POSITION + length
            if position > len(buffer):
                raise MalformedError(f"a client id of {length} bytes reaches beyond the end")
            client_id = str(buffer[_CLIENT_ID_POSITION:position], "utf-8")
        elif length == -1:
            position = _CLIENT_ID_POSITION
            client_id = None
        else:
            raise MalformedError(f"a client id of {length} bytes")
        if header_version >= 2:
            tag_count = buffer[position]
            position += 1
            if tag_count:
                position = skip_tagged_fields(buffer, position, tag_count)
    except (struct_error, IndexError, UnicodeDecodeError, MalformedError) as error:
        raise DecodeError(f"request header v{header_version}: {error}", position=0, expected="request header") from None
    return client_id, position


def request_header_version(api_key: int, api_version: int) -> int:
    """The header version of a request; 1 for an API that is not declared."""
    request_type = REQUESTS.get(api_key)
    return 2 if request_type is not None and api_version in schema_of(request_type).flexible else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """The header version of a reply; 0 for an API that is not declared."""
    response_type = RESPONSES.get(api_key)
    if response_type is None or api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version in schema_of(response_type).flexible else 0


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, header_version: int
) -> bytearray:
    """Encode a request header of version 1 or 2, without tagged fields."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    out = bytearray(_REQUEST_START_AND_CLIENT_ID_LENGTH.pack(api_key, api_version, correlation_id, length))
    out += encoded
    if header_version >= 2:
        out.append(0)
    return out


def read_response_header(buffer: Buffer, header_version: int) -> tuple[int, int]:
    """Read the header of a reply; return correlation id and position of the reply itself. Tagged fields are skipped.

    Raises DecodeError.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer)
        position = _CORRELATION_ID.size
        if header_version >= 1:
            tag_count = buffer[position]
            position += 1
            if tag_count:
                position = skip_tagged_fields(buffer, position, tag_count)
    except (struct_error, IndexError, MalformedError) as error:
        raise DecodeError(f"reply header v{header_version}: {error}", position=0, expected="reply header") from None
    return correlation_id, position
