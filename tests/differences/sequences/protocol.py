"""What is below all APIs: versions that are not served, bodies that cannot be read, headers, ApiVersions."""

from __future__ import annotations

import struct

from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.schema import encode, schema_of
from tests.differences.exchange import Exchange, raw_frame

API_VERSIONS, METADATA, CONTROLLED_SHUTDOWN, SASL_HANDSHAKE = 18, 3, 7, 17


def run(exchange: Exchange) -> None:
    api_versions(exchange)
    frames(exchange)
    bodies(exchange)


def api_versions(exchange: Exchange) -> None:
    for version in exchange.versions(ApiVersionsRequest):
        exchange.ask("api versions", ApiVersionsRequest("asker", "1.0"), version)
        exchange.ask("no software name", ApiVersionsRequest("", ""), version)
        exchange.ask("software name of other characters", ApiVersionsRequest("a client", "1.0"), version)
        exchange.ask("software version of other characters", ApiVersionsRequest("asker", "1,0"), version)
        exchange.ask("software name that ends in a dot", ApiVersionsRequest("asker.", "1.0"), version)
        exchange.ask("software name with dots and dashes", ApiVersionsRequest("a-b.c", "1-0.0"), version)
    body = bytes(encode(ApiVersionsRequest("asker", "1.0"), 4))
    for version in (5, 6, 127, 0x7FFF):
        frame = raw_frame(API_VERSIONS, version, body, tags=b"\0")
        exchange.ask_bytes("api versions of the future", frame, version=version)
        frame = raw_frame(API_VERSIONS, version, b"\xff" * 9)
        exchange.ask_bytes("the same with an unreadable body", frame, version=version)
    exchange.ask_bytes("api versions of the future, header only", raw_frame(API_VERSIONS, 9, b""))
    exchange.ask_bytes("api versions of a negative version", raw_frame(API_VERSIONS, -1, body))


def frames(exchange: Exchange) -> None:
    header = struct.pack(">hhi", METADATA, 1, 7)
    for situation, content in {
        "an empty frame": struct.pack(">i", 0),
        "a negative length": struct.pack(">i", -1),
        "a length of 2 GiB": struct.pack(">i", 2**31 - 1) + b"x" * 20,
        "a frame of 3 bytes": struct.pack(">i", 3) + b"abc",
        "a header without client id": struct.pack(">i", 8) + header,
        "a client id of a negative length": struct.pack(">i", 10) + header + struct.pack(">h", -2),
        "a client id that is longer than the frame": struct.pack(">i", 14) + header + struct.pack(">h", 400) + b"asdf",
        "a null client id": raw_frame(METADATA, 1, struct.pack(">i", 0), client_id=None),
        "a client id that is not UTF-8": raw_frame(API_VERSIONS, 0, b"", client_id=b"\xff\xfe"),
        "an empty client id": raw_frame(API_VERSIONS, 0, b"", client_id=b""),
        "tagged fields of the header that nobody knows": raw_frame(
            API_VERSIONS, 3, bytes(encode(ApiVersionsRequest("a", "1"), 3)), tags=b"\x01\x63\x02ab"
        ),
        "a tagged field of the header that is cut": raw_frame(API_VERSIONS, 3, b"", tags=b"\x01\x63\x7f"),
    }.items():
        exchange.ask_bytes(situation, content)
    for situation, key, version in (
        ("an API that does not exist", 9_999, 0),
        ("an API of a negative key", -1, 0),
        ("an API that was removed", CONTROLLED_SHUTDOWN, 0),
        ("Metadata of the future", METADATA, 99),
        ("Metadata of a negative version", METADATA, -1),
        ("SaslHandshake without SASL", SASL_HANDSHAKE, 1),
    ):
        exchange.ask_bytes(situation, raw_frame(key, version, b"\0" * 12))


def bodies(exchange: Exchange) -> None:
    for version in exchange.versions(MetadataRequest):
        is_flexible = version in schema_of(MetadataRequest).flexible
        tags = b"\0" if is_flexible else b""
        whole = bytes(encode(MetadataRequest(topics=[]), version))

        def ask(situation: str, body: bytes, version: int = version, tags: bytes = tags) -> None:
            exchange.ask_bytes(situation, raw_frame(METADATA, version, body, tags=tags), version=version)

        ask("an empty body", b"")
        ask("a body that is cut", whole[:-1])
        ask("a count of 2^31-1 topics", b"\xff\xff\xff\xff\x07" if is_flexible else b"\x7f\xff\xff\xff")
        ask("a negative count", b"\xff\xff\xff\xff\x0f" if is_flexible else b"\xff\xff\xff\xfe")
        ask("random bytes", bytes(range(7, 77)))
        if version == 1:
            large = raw_frame(METADATA, version, struct.pack(">i", 300_000) + b"\0\1a" * 300_000)
            exchange.ask_bytes("300,000 topics", large, version=version, patience_s=8.0)
        if is_flexible:
            ask("a tagged field that nobody knows", whole[:-1] + b"\x01\x63\x02ab")
