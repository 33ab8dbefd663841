"""One plain connection to a broker that sends any request at any version, encoded by kafka-python's protocol classes.

Those carry Kafka's own schemas, so they say what Kafka itself would say. The few APIs that they lack are sent in our
own.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer
from kafka.record.memory_records import MemoryRecordsBuilder

from fencepost.protocol.headers import encode_request_header, request_header_version, response_header_version
from fencepost.protocol.messages import RESPONSES as OWN_RESPONSES
from fencepost.protocol.schema import decode, encode

CLIENT_ID = "frames"
NO_PRODUCER_ID = -1
READ_COMMITTED = 1
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS
RETRYABLE = {14, 15, 16, 51}
ATTEMPTS = 100


class Session:
    """One connection to the broker with what the scenarios share: the topic, its id, and the versions served."""

    def __init__(self, port: int, *, topic: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._correlation_id = 0
        self.port = port
        self.topic = topic
        self.topic_id = uuid.UUID(int=0)
        answer = self.send(metadata.ApiVersionsRequest, 4, client_software_name="frames", client_software_version="1")
        self.served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def close(self) -> None:
        self._socket.close()

    def send(self, request_class: type[Any], version: int, **values: Any) -> Any:
        """Sends one request and returns the decoded reply; `values` holds fields of any version, nested structs as
        dicts.
        """
        self._correlation_id += 1
        request = build(request_class, version, values)
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.sendall(request.encode(header=True, framed=True))
        (length,) = struct.unpack(">i", self._receive(4))
        frame = self._receive(length)
        response_class = RESPONSES[request_class.API_KEY]
        return response_class.decode(frame, version=version, header=True)

    def send_own(self, request: Any, version: int) -> Any:
        """The same for one of our own messages: kafka-python does not know every API."""
        self._correlation_id += 1
        header_version = request_header_version(request.api_key, version)
        header = encode_request_header(request.api_key, version, self._correlation_id, CLIENT_ID, header_version)
        frame = bytes(header) + bytes(encode(request, version))
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._receive(4))
        position = 4 + response_header_version(request.api_key, version)
        return decode(OWN_RESPONSES[request.api_key], self._receive(length), version, position)

    def send_until_settled(self, request_class: type[Any], version: int, **values: Any) -> Any:
        """The same, repeated while the reply's error says that the coordinator is busy or still loading."""
        for _ in range(ATTEMPTS):
            response = self.send(request_class, version, **values)
            if getattr(response, "error_code", 0) not in RETRYABLE:
                return response
            time.sleep(0.05)
        raise RuntimeError(f"{request_class.__name__} v{version} did not settle: {response}")

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def build(message_class: type[Any], version: int, values: Mapping[str, Any]) -> Any:
    """A message of kafka-python from plain values: structs as dicts, arrays of structs as lists of dicts."""
    fields = message_class._struct.fields
    converted = {}
    for name, value in values.items():
        field = fields[name]
        if not field.for_version_q(version):
            continue
        if field.is_struct_array() and value is not None:
            converted[name] = [build(field.data_class, version, element) for element in value]
        elif field.is_struct() and value is not None:
            converted[name] = build(field.data_class, version, value)
        else:
            converted[name] = value
    return message_class(version=version, **converted)


def record_batch(
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    count: int = 2,
) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=16384)
    if producer_id != NO_PRODUCER_ID:
        builder.set_producer_state(producer_id, producer_epoch, base_sequence, transactional)
    for index in range(count):
        builder.append(
            timestamp=1_700_000_000_000 + index, key=b"key%d" % index, value=b"value", headers=[("header", b"x")]
        )
    builder.close()
    return bytes(builder.buffer())


RESPONSES: dict[int, type[Any]] = {
    value.API_KEY: value
    for module in (admin, consumer, metadata, producer)
    for name, value in vars(module).items()
    if name.endswith("Response")
}
