"""Probing whether a broker serves: other servers are recognised, and no probe takes long."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.cli.probe import NoBrokerError, check_advertised, parse_address, probe, probe_any
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from fencepost.protocol.schema import encode


@contextmanager
def answering(reply: bytes | None) -> Iterator[int]:
    """A port on which every connection is answered with these bytes and closed; None: never answered."""
    ended = threading.Event()

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            if reply is None:
                ended.wait()
            else:
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            ended.set()
            thread.join()


REPLY = bytes.fromhex("00000010 00000001 0000 00000001 0012 0000 0004")


def test_a_broker_is_recognized_by_its_answer() -> None:
    with answering(REPLY) as port:
        assert probe("127.0.0.1", port).apis_count == 1


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka's protocol"),
        (REPLY[:-1], "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01\x00", "does not speak Kafka's protocol"),
        (b"", "closed without an answer; a listener with TLS does that: give --command-config"),
        (bytes.fromhex("15 0303 0002 02 0a"), "that listener speaks TLS: give --command-config"),
    ],
)
def test_a_server_that_is_no_broker_is_recognised(reply: bytes, part: str) -> None:
    with answering(reply) as port, pytest.raises(NoBrokerError, match=part):
        probe("127.0.0.1", port)


def test_silence_is_not_waited_for_for_long() -> None:
    with answering(None) as port, pytest.raises(NoBrokerError, match=r"gave no answer within 0\.05 s"):
        probe("127.0.0.1", port, timeout_s=0.05)


def test_a_refused_connection_and_an_unknown_host_have_different_reasons() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(NoBrokerError, match="connection refused"):
        probe("127.0.0.1", port)
    with pytest.raises(NoBrokerError, match="cannot be resolved"):
        probe("a..b", 9092)


def test_the_first_address_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    with answering(REPLY) as port:
        assert probe_any(f"127.0.0.1:{free},127.0.0.1:{port}").apis_count == 1
    with pytest.raises(NoBrokerError, match=r"^connection refused$"):
        probe_any(f"127.0.0.1:{free},127.0.0.1:{free}")


@pytest.mark.parametrize(
    ("text", "address"),
    [("localhost:9092", ("localhost", 9092)), ("[::1]:1", ("::1", 1)), (" 10.0.0.1:65535 ", ("10.0.0.1", 65_535))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", ":9092", "host:", "host:x", "host:0", "host:65536", "::1:9092", "PLAINTEXT://host:9092"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9092"):
        parse_address(text)


# Where clients are sent


@contextmanager
def advertising(*addresses: tuple[str, int], latest_version: int = 13) -> Iterator[str]:
    """The address of a broker that sends clients to these addresses, and knows Metadata up to a version."""
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=latest_version)])
    brokers = [
        MetadataResponseBroker(node_id=number, host=host, port=port) for number, (host, port) in enumerate(addresses)
    ]

    def framed(message: object, version: int) -> bytes:
        contents = b"\0\0\0\1" + encode(message, version)
        return len(contents).to_bytes(4, "big") + contents

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while request := connection.recv(4096):
                    version = int.from_bytes(request[6:8], "big")
                    is_metadata = request[4:6] == b"\0\3"
                    connection.sendall(framed(MetadataResponse(brokers=brokers) if is_metadata else versions, version))

    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, args=(listening,))
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("latest_version", [1, 4, 13])
def test_an_advertised_address_without_a_broker_is_named_with_the_reason(latest_version: int) -> None:
    with (
        advertising(("127.0.0.1", 1), latest_version=latest_version) as bootstrap,
        pytest.raises(NoBrokerError, match=r"127\.0\.0\.1:1 \(connection refused\)"),
    ):
        check_advertised(bootstrap)


def test_silent_advertised_addresses_take_seconds_in_all() -> None:
    with silent() as first, silent() as second:
        sent_to = [("127.0.0.1", first), ("127.0.0.1", second)]
        started_s = time.monotonic()
        with advertising(*sent_to) as bootstrap, pytest.raises(NoBrokerError, match=r"no answer .*, .*no answer"):
            check_advertised(bootstrap, timeout_s=3)
        assert time.monotonic() - started_s < 6


def test_one_advertised_address_with_a_broker_is_enough() -> None:
    with advertising(("127.0.0.1", 1)) as other:
        host, port = parse_address(other)
        with advertising(("127.0.0.1", 1), (host, port)) as bootstrap:
            check_advertised(bootstrap)


def test_a_broker_that_advertises_where_it_was_found_is_not_asked_again() -> None:
    with advertising(("127.0.0.1", 1)) as other, advertising(parse_address(other)) as bootstrap:
        check_advertised(f"{bootstrap},{other}")


@pytest.mark.parametrize("latest_version", [0, 4])
def test_where_nothing_is_known_nothing_is_refused(latest_version: int) -> None:
    with advertising(latest_version=latest_version) as bootstrap:
        check_advertised(bootstrap)
    check_advertised("127.0.0.1:1")
