"""Requests that a buggy or a hostile client may send: well-formed ones full of nonsense, and bytes that are none.

Everything comes from one seeded generator, so that what was found once is found again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from fencepost.protocol.declaration import ArrayOf, Field, StructOf, StructSchema, WireType, struct_schema_of
from fencepost.protocol.headers import request_header_version
from fencepost.protocol.primitives import RECORDS, STRING, FixedWidth
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import encode, schema_of

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
TIMES = ("timeout_ms", "max_wait_ms", "lifetime_ms", "period_ms")
VICTIM_TOPIC = "victim"
NAMES = {
    "topic": [VICTIM_TOPIC, "victim.2", "victim_2", "nobody", "__consumer_offsets", "__transaction_state", "", "a b"],
    "group": ["victims", "victims-2", ""],
    "transactional_id": ["victim-transaction", "victim-transaction-2", ""],
    "member": ["", "somebody", "AAAAAAAAAAAAAAAAAAAAAA"],
    "protocol": ["consumer", "range", "", "connect"],
    "config": ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "", "no.such.setting"],
    "value": ["1", "-1", "", "compact", "x" * 300],
}
HOSTILE_TEXTS = [
    "",
    "\0",
    "../../etc/passwd",
    "é" * 64,
    "x" * 126,
    "x" * 127,
    "x" * 249,
    "y" * 3_000,
    "\U0001f980",
    "%s%n",
]


class RequestFrame(NamedTuple):
    """A frame that a client may send. is_whole: it is a request that can be read, so its reply is looked at."""

    api_key: int
    version: int
    correlation_id: int
    content: bytes
    is_whole: bool
    expects_reply: bool


class HostileRequests:
    """A source of nonsense. topic_ids: those of the victims, so that requests by id find something."""

    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self.chance = Random(seed)  # not for secrets
        self._topic_ids = [*topic_ids, bytes(16), b"\xff" * 16]
        self._correlation_id = 0

    # Well-formed requests

    def request(self, request_type: type[Any], version: int) -> RequestFrame:
        """A request that can be read, of values that may make no sense."""
        message = self._struct(schema_of(request_type), version)
        expects_reply = getattr(message, "acks", 1) != 0
        return self._frame(schema_of(request_type).api_key, version, bytes(encode(message, version)), expects_reply)

    def _frame(self, api_key: int, version: int, body: bytes, expects_reply: bool) -> RequestFrame:
        self._correlation_id += 1
        client_id = self.chance.choice([None, b"", b"hostile", "ü".encode() * 50])
        header = struct.pack(
            ">hhih", api_key, version, self._correlation_id, -1 if client_id is None else len(client_id)
        )
        header += client_id or b""
        if request_header_version(api_key, version) >= 2:
            header += self.chance.choice([b"\0", b"\0", b"\x02\x07\x01a\x63\0"])  # sometimes tags that nobody knows
        content = struct.pack(">i", len(header) + len(body)) + header + body
        return RequestFrame(api_key, version, self._correlation_id, content, True, expects_reply)

    def _struct(self, schema: StructSchema, version: int) -> Any:
        present = [field for field in schema.fields if version in field.versions]
        return schema.python_class(**{field.name: self._field(field, version) for field in present})

    def _field(self, field: Field, version: int) -> Any:
        if version in field.nullable and self.chance.random() < 0.15:
            return None
        return self._value(field.type, field.name, version)

    def _value(self, wire_type: WireType, name: str, version: int) -> Any:
        chance = self.chance
        if isinstance(wire_type, ArrayOf):
            count = chance.choice([0, 1, 1, 1, 2, 3]) if chance.random() < 0.95 else 40
            return [self._value(wire_type.element, name, version) for _ in range(count)]
        if isinstance(wire_type, StructOf):
            return self._struct(struct_schema_of(wire_type.python_class), version)
        if isinstance(wire_type, FixedWidth):
            return self._fixed(wire_type.name, name)
        if wire_type is STRING:
            return self._text(name)
        return self._records() if wire_type is RECORDS else chance.randbytes(chance.choice([0, 1, 30, 3_000]))

    def _fixed(self, type_name: str, name: str) -> Any:
        chance = self.chance
        if type_name == "bool":
            return chance.random() < 0.5
        if type_name == "uuid":
            return chance.choice(self._topic_ids)
        if type_name == "float64":
            return chance.choice([0.0, -1.0, 1.5, float("nan"), float("inf"), 1e300])
        if name.endswith(TIMES):
            return chance.choice([0, 1, 20, -1, -(2**31)])
        if name in ("num_partitions", "count"):
            return chance.choice([-1, 0, 1, 2, 2**31 - 1, -(2**31)])
        bits = BITS[type_name]
        if type_name.startswith("uint"):
            return chance.choice([0, 1, 2**bits - 1])
        usual = [0, 0, 0, 1, 1, 2, 3, 5, -1, -1, -2]
        edges = [2 ** (bits - 1) - 1, -(2 ** (bits - 1)), chance.randrange(2 ** (bits - 1))]
        return chance.choice(usual if chance.random() < 0.8 else edges)

    def _text(self, name: str) -> str:
        chance = self.chance
        if chance.random() < 0.2:
            return chance.choice(HOSTILE_TEXTS)
        for part, texts in NAMES.items():
            if part in name:
                return chance.choice(texts)
        return chance.choice(NAMES[chance.choice(["topic", "group"])] if "name" in name else HOSTILE_TEXTS)

    def _records(self) -> bytes:
        chance = self.chance
        records = [Record(index, 1_700_000_000_000, b"k", b"v" * 20, ()) for index in range(chance.randrange(1, 4))]
        batch = build_batch(
            records,
            producer_id=chance.choice([-1, -1, 0, 1, 70_000]),
            producer_epoch=chance.choice([-1, 0, 1]),
            base_sequence=chance.choice([-1, 0, 2, 2**31 - 1]),
            is_transactional=chance.random() < 0.3,
        )
        if chance.random() < 0.5:
            self._change(batch)
        return bytes(batch)

    # Bytes

    def damaged(self, request_type: type[Any], version: int) -> RequestFrame:
        """A request of which some bytes were changed, taken away or added; only its length is right, mostly."""
        whole = self.request(request_type, version)
        body = bytearray(whole.content[4:])
        for _ in range(self.chance.randrange(1, 4)):
            self._change(body)
        length = len(body) if self.chance.random() < 0.9 else len(body) + self.chance.choice([-3, 5, 1_000])
        content = struct.pack(">i", length) + bytes(body)
        return whole._replace(content=content, is_whole=False)

    def _change(self, content: bytearray) -> None:
        chance = self.chance
        place = chance.randrange(len(content) + 1)
        match chance.randrange(6):
            case 0 if place < len(content):
                content[place] ^= 1 << chance.randrange(8)
            case 1 if place + 4 <= len(content):
                content[place : place + 4] = struct.pack(">i", chance.choice([-1, -2, 2**31 - 1, -(2**31), 1_000_000]))
            case 2:
                del content[place:]
            case 3:
                content[place:place] = chance.choice([b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\x80" * 11])
            case 4:
                content[place:place] = chance.randbytes(chance.randrange(1, 40))
            case _:
                content[place : place + 8] = bytes(8)

    def nonsense(self) -> Iterator[bytes]:
        """What is not even a frame, or of no API and version that there is; without end."""
        chance = self.chance
        while True:
            length = chance.choice([-1, 0, 3, 7, -(2**31), 2**31 - 1, 100 * 1024 * 1024, 20])
            yield struct.pack(">i", length) + chance.randbytes(20)
            key, version = chance.choice([-1, 4, 7, 93, 32_767, chance.randrange(93)]), chance.choice([-1, 99, 32_767])
            header = struct.pack(">hhih", key, version, 1, 1) + b"x"
            yield struct.pack(">i", len(header) + 20) + header + chance.randbytes(20)
            yield chance.choice([b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", bytes(64), b"\xff" * 64])
