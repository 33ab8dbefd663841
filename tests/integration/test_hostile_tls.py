"""Strangers before a listener with TLS: handshakes that never end, are damaged or begin again, and certificates whose
names resemble that of another client.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import re
import select
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.differences.connection import CLIENT_ID
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority, CertificateFiles
from tests.support.conditions import until

SHORT_TIMEOUT_MS: Final = 1_000
"""For clients whose handshake stops. One on a busy machine may need longer, so the others meet another broker."""
TIMEOUT_MS: Final = 60_000
PATIENCE_S: Final = 60.0
SLOWEST_WITNESS_S: Final = TIMEOUT_MS / 1000 / 2
"""A client that had to wait for strangers would wait until their time is over; the rest is for a busy machine."""
MOST_CONNECTIONS: Final = 40
SEED: Final = 11_091
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class NamingAuthority:
    """An authority that certifies any name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "naming authority")])
        certificate = self._signed(self._name, self._key, is_authority=True)
        self.path = folder / "naming-authority.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def client(self, number: int, *attributes: x509.NameAttribute[str]) -> CertificateFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(x509.Name(attributes), key, is_authority=False).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        paths = [self._folder / f"client-{number}.{kind}" for kind in ("crt", "key", "pem")]
        for path, content in zip(paths, (certificate, private, private + certificate), strict=True):
            path.write_bytes(content)
        return CertificateFiles(*paths)

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers-of-tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "authority")


@pytest.fixture(scope="module")
def naming(folder: Path) -> NamingAuthority:
    return NamingAuthority(folder)


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority, naming: NamingAuthority) -> Iterator[BrokerProcess]:
    with secured_broker(folder, authority, naming, TIMEOUT_MS) as process:
        yield process


@pytest.fixture(scope="module")
def impatient_broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, naming: NamingAuthority
) -> Iterator[BrokerProcess]:
    with secured_broker(tmp_path_factory.mktemp("silent"), authority, naming, SHORT_TIMEOUT_MS) as process:
        yield process


@contextlib.contextmanager
def secured_broker(
    folder: Path, authority: Authority, naming: NamingAuthority, timeout_ms: int
) -> Iterator[BrokerProcess]:
    trusted = folder / "trusted.pem"
    trusted.write_bytes(authority.path.read_bytes() + naming.path.read_bytes())
    settings = {
        "ssl.keystore.location": str(authority.server().both),
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "requested",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:CN=admin",
        "fencepost.authentication.timeout.ms": str(timeout_ms),
        "max.connections": str(MOST_CONNECTIONS),
    }
    with BrokerProcess(folder / "data", settings=settings, protocol="SSL") as process:
        yield process
        assert process.is_running, process.output
        assert "[error" not in process.output, process.output
        assert "Traceback" not in process.output, process.output


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a handshake."""
    sent = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return sent.read()


def plain_socket(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S)


def wait_for_the_end(connection: socket.socket) -> None:
    """Raises TimeoutError where the connection stays open."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it by now."""
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except ConnectionResetError:
        return True


def served(broker: BrokerProcess, context: ssl.SSLContext) -> float:
    """Seconds until a client with TLS has its first reply."""
    began_s = time.monotonic()
    with plain_socket(broker) as raw, context.wrap_socket(raw, server_hostname="localhost") as connection:
        connection.sendall(request_frame(1, CLIENT_ID, MetadataRequest([]), 12))
        assert connection.recv(4)
        return time.monotonic() - began_s


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_client_hello_that_does_not_end_is_cut_off_in_time(
    impatient_broker: BrokerProcess, authority: Authority, share: float
) -> None:
    hello = client_hello(authority.context())
    began_s = time.monotonic()
    with plain_socket(impatient_broker) as connection:
        connection.sendall(hello[: int(len(hello) * share)])
        wait_for_the_end(connection)
        assert time.monotonic() - began_s > SHORT_TIMEOUT_MS / 1000 * 0.9


def test_clients_that_stop_in_their_handshake_are_counted_as_connections(
    broker: BrokerProcess, authority: Authority
) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(plain_socket(broker)) for _ in range(MOST_CONNECTIONS * 2)]
        # The time of those that are let in is far from over.
        until(lambda: sum(is_closed(connection) for connection in silent) >= MOST_CONNECTIONS, timeout_s=30)
    until(lambda: is_let_in(broker, authority.context()))
    assert served(broker, authority.context()) < SLOWEST_WITNESS_S


def is_let_in(broker: BrokerProcess, context: ssl.SSLContext) -> bool:
    """Whether the broker has room for a connection by now."""
    try:
        served(broker, context)
    except (OSError, AssertionError):
        return False
    return True


def test_damaged_handshakes_harm_nobody(broker: BrokerProcess, authority: Authority) -> None:
    chance, context = random.Random(SEED), authority.context()
    hello = client_hello(context)
    for number in range(150):
        damaged = bytearray(hello)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            damaged[3:5] = struct.pack(">H", chance.randrange(65_536))
        with plain_socket(broker) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(damaged + chance.randbytes(chance.choice([0, 0, 50, 20_000])))
                connection.shutdown(socket.SHUT_WR)
            wait_for_the_end(connection)  # so that it does not count among the connections any more
        if number % 30 == 0:
            assert served(broker, context) < SLOWEST_WITNESS_S


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", bytes(request_frame(1, CLIENT_ID, MetadataRequest([]), 12))]
)
def test_what_is_no_tls_is_ended(broker: BrokerProcess, sent: bytes) -> None:
    with plain_socket(broker) as connection:
        connection.sendall(sent)
        wait_for_the_end(connection)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="only its command line begins a handshake again")
def test_a_handshake_does_not_begin_again(broker: BrokerProcess) -> None:
    command = ["openssl", "s_client", "-connect", f"{broker.host}:{broker.port}", "-tls1_2"]
    finished = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=60, check=False)
    assert "RENEGOTIATING" in finished.stdout + finished.stderr
    assert re.search("no renegotiation|alert|unexpected eof", finished.stderr, re.IGNORECASE), finished.stderr


def create_topic(broker: BrokerProcess, context: ssl.SSLContext, name: str) -> int:
    """The error of CreateTopics."""
    with plain_socket(broker) as raw, context.wrap_socket(raw, server_hostname="localhost") as connection:
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5_000, validate_only=True)
        connection.sendall(request_frame(1, CLIENT_ID, request, 4))
        received = b""
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            received += connection.recv(65_536)
        # Length, correlation id, throttle time, number of topics, the name, the error.
        (code,) = struct.unpack_from(">h", received, 4 + 4 + 4 + 4 + 2 + len(name))
        return int(code)


def common_name(value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(NameOID.COMMON_NAME, value, _validate=False)


NAMES: Final = {
    "the name itself": ([common_name("admin")], ErrorCode.NONE),
    "a NUL behind it": ([common_name("admin\0.example.org")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "a NUL at its end": ([common_name("admin\0")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "a comma in it": ([common_name("x,CN=admin")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "an escape in it": ([common_name("admin\\")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "a blank before it": ([common_name(" admin")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "capital letters": ([common_name("Admin")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "a semicolon": ([common_name("x;User:CN=admin")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "two names": ([common_name("x"), common_name("admin")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "an organization's": (
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "CN=admin")],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_resembles_another_is_another(
    broker: BrokerProcess, authority: Authority, naming: NamingAuthority, case: str
) -> None:
    attributes, expected = NAMES[case]
    context = authority.context()
    naming.client(list(NAMES).index(case), *attributes).load_into(context)
    assert create_topic(broker, context, "mine") == expected


def test_a_certificate_of_an_authority_that_is_not_trusted_is_refused(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    context = authority.context()
    NamingAuthority(tmp_path).client(0, common_name("admin")).load_into(context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        create_topic(broker, context, "mine")


def test_nobody_without_a_certificate_is_anybody(broker: BrokerProcess, authority: Authority) -> None:
    assert create_topic(broker, authority.context(), "mine") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
