"""The states of an authentication, each with what a client may send in it, right and wrong; and sessions that end.

Texts of refusals count here: they are what a client without a name learns.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import scramp

from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from fencepost.protocol.schema import schema_of
from tests.differences.connection import CLIENT_ID, Connection, ConnectionClosedError
from tests.differences.exchange import CLOSED, SILENCE, Exchange
from tests.differences.secured.questions import CHANGING, QUESTIONS, Things
from tests.differences.secured.sides import ALICE, BOB, SHORT_SESSION_MS
from tests.differences.secured.world import SecuredWorld

SCRAM: Final = "SCRAM-SHA-256"
NUMBER_OF_SHA_256: Final = 1
ITERATIONS: Final = 4_096
SALT: Final = b"a salt of sixteen"[:16]
PASSWORD: Final = "dave-secret"
EXPIRED_AFTER_S: Final = SHORT_SESSION_MS / 1000 + 0.3
LARGEST_FRAME_BYTES: Final = 524_288
PATIENCE_S: Final = 3.0

TOKENS: Final = {
    "right": ALICE.token,
    "wrong password": b"\0alice\0wrong",
    "unknown user": b"\0mallory\0wrong",
    "user of another case": b"\0Alice\0alice-secret",
    "the user's own name as identity": b"alice\0alice\0alice-secret",
    "another identity": b"bob\0alice\0alice-secret",
    "another identity, wrong password": b"bob\0alice\0wrong",
    "no user": b"\0\0alice-secret",
    "no password": b"\0alice\0",
    "nothing": b"",
    "no separator": b"alice",
    "one separator": b"\0alice",
    "three separators": b"\0alice\0alice-secret\0",
    "only separators": b"\0\0",
    "many separators": b"\0" * 100,
    "not UTF-8": b"\0\xff\xfe\0alice-secret",
    "SCRAM's first": b"n,,n=alice,r=nonce",
}
SCRAM_FIRSTS: Final = {
    "nothing": b"",
    "no header": b"n=dave,r=nonce",
    "no nonce": b"n,,n=dave",
    "an empty nonce": b"n,,n=dave,r=",
    "a bound channel": b"p=tls-unique,,n=dave,r=nonce",
    "not UTF-8": b"n,,n=\xff,r=nonce",
    "another identity": b"n,a=bob,n=dave,r=nonce",
    "PLAIN's": b"\0dave\0dave-secret",
    "a mandatory extension": b"n,,m=x,n=dave,r=nonce",
}


class Talk:
    """What is said on one connection, written down step by step."""

    def __init__(self, exchange: Exchange, name: str) -> None:
        self.exchange = exchange
        self.connection: Connection = exchange.connect_as_nobody()
        self.is_open = True
        self._name = name
        self._steps_count = 0

    def write(self, step: str, what: Any) -> None:
        self._steps_count += 1
        self.exchange.note(f"{self._name}: {self._steps_count} {step}", 0, what)

    def frame(self, content: bytes) -> bytes | None:
        """Send bytes and return the next frame; None, written down, if there is none."""
        found = self.attempt(lambda: self.connection.send_bytes(content))
        return found if found is not None and self.is_open else None

    def attempt(self, send: Callable[[], None]) -> bytes | None:
        try:
            send()
            return self.connection.receive_frame(PATIENCE_S)
        except ConnectionClosedError:
            self.is_open = False
            self.write("is closed", CLOSED)
        except TimeoutError:
            self.is_open = False
            self.write("hears nothing", SILENCE)
        return None

    def call(self, step: str, request: Any, version: int) -> Any:
        """The reply as an object, None if there is none. The record of the answer has the fields that `_told` keeps."""
        if not self.is_open:
            return None
        try:
            self.connection.send(request, version)
            reply = self.connection.receive(schema_of(type(request)).api_key, version)
        except ConnectionClosedError:
            self.is_open = False
            self.write(step, CLOSED)
            return None
        except TimeoutError:
            self.is_open = False
            self.write(step, SILENCE)
            return None
        told = _told(reply)
        if "error_message" in told:
            told["error_message"] = self.exchange.plain_text(told["error_message"])
        self.write(step, told)
        return reply

    # Steps

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.call(f"handshake {version} {mechanism}", SaslHandshakeRequest(mechanism), version)

    def token(self, step: str, token: bytes, version: int = 2) -> Any:
        return self.call(f"{step}, SaslAuthenticate {version}", SaslAuthenticateRequest(token), version)

    def raw_token(self, step: str, token: bytes) -> bytes | None:
        if not self.is_open:
            return None
        reply = self.frame(struct.pack(">i", len(token)) + token)
        if reply is not None:
            self.write(step, "an empty frame" if not reply else _told_by_scram(reply))
        return reply

    def log_in(self, token: bytes = ALICE.token, *, version: int = 2) -> None:
        self.handshake()
        self.token("log in", token, version)

    def scram(self, user: str, password: str = PASSWORD, *, version: int = 2) -> None:
        """A whole exchange of SCRAM, whose server is checked, too."""
        self.handshake(SCRAM)
        client = scramp.ScramClient([SCRAM], user, password)
        first = self.token("first", client.get_client_first().encode(), version)
        if first is None or first.error_code:
            return
        client.set_server_first(first.auth_bytes.decode())
        final = self.token("final", client.get_client_final().encode(), version)
        if final is not None and not final.error_code:
            client.set_server_final(final.auth_bytes.decode())

    def served(self) -> None:
        """Whether requests are."""
        self.call("Metadata", MetadataRequest([]), 12)

    def api_versions(self, version: int = 3, name: str = "asker") -> None:
        self.call(f"ApiVersions {version}", ApiVersionsRequest(name, "1"), version)


def _told(reply: Any) -> Any:
    told: dict[str, Any] = {"error": getattr(reply, "error_code", 0)}
    for name in ("error_message", "session_lifetime_ms"):
        if getattr(reply, name, None):
            told[name] = getattr(reply, name)
    if getattr(reply, "mechanisms", None):
        told["mechanisms"] = sorted(reply.mechanisms)
    if getattr(reply, "auth_bytes", None):
        told["token"] = _told_by_scram(reply.auth_bytes)
    return told


def _told_by_scram(token: bytes) -> list[str]:
    """The names of its fields, with the number of iterations."""
    fields = token.decode("latin-1").split(",")
    return [field if field[:2] in ("i=", "e=") else field[:1] for field in fields]


def run(exchange: Exchange) -> None:
    world = SecuredWorld(exchange)
    dave, erin = exchange.name("dave"), exchange.name("erin")
    for user in (dave, erin):
        _add_scram_user(exchange, user)
    before_the_handshake(exchange)
    tokens(exchange)
    raw_tokens(exchange)
    other_requests(exchange, world.missing())
    again(exchange, dave)
    again_where_sessions_end(exchange, dave, erin)
    scram(exchange, dave)
    sessions_end(exchange, dave)


def salted(password: str) -> bytes:
    """What a client sends of a new password, with SALT and ITERATIONS."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ITERATIONS)


def _add_scram_user(exchange: Exchange, user: str) -> None:
    upsertion = ScramCredentialUpsertion(user, NUMBER_OF_SHA_256, ITERATIONS, SALT, salted(PASSWORD))
    exchange.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    exchange.settle()


def before_the_handshake(exchange: Exchange) -> None:
    Talk(exchange, "Metadata first").served()
    talk = Talk(exchange, "ApiVersions twice")
    talk.api_versions()
    talk.api_versions()
    talk = Talk(exchange, "ApiVersions and Metadata")
    talk.api_versions()
    talk.served()
    talk = Talk(exchange, "a version of the future")
    frame = bytearray(request_frame(1, CLIENT_ID, ApiVersionsRequest("asker", "1"), 3))
    frame[6:8] = struct.pack(">h", 99)
    reply = talk.frame(bytes(frame))
    if reply is not None:
        talk.write("error", struct.unpack_from(">h", reply, 4)[0])
    talk.api_versions()
    talk.log_in()
    talk.served()
    talk = Talk(exchange, "software without a name")
    talk.api_versions(name="")
    talk.log_in()
    talk.served()
    for version in (0, 1):
        talk = Talk(exchange, f"an unknown mechanism, version {version}")
        talk.handshake("NOTHING", version)
        talk.handshake()
        talk = Talk(exchange, f"no mechanism, version {version}")
        talk.handshake("", version)
    Talk(exchange, "a mechanism in small letters").handshake("plain")
    Talk(exchange, "a token first").token("right", ALICE.token)
    for size in (LARGEST_FRAME_BYTES + 1, 2**31 - 1, -1, 0, 3):
        talk = Talk(exchange, f"a frame of {size} bytes")
        talk.frame(struct.pack(">i", size) + b"\0" * 16)
    talk = Talk(exchange, "HTTP")
    talk.frame(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    talk = Talk(exchange, "TLS")
    talk.frame(bytes.fromhex("160301012c010001280303") + bytes(300))


def tokens(exchange: Exchange) -> None:
    for name, token in TOKENS.items():
        for version in (0, 1, 2):
            talk = Talk(exchange, f"token of version {version}: {name}")
            talk.handshake()
            talk.token(name, token, version)
            talk.served()
    talk = Talk(exchange, "a large token")
    talk.handshake()
    talk.token("large", b"\0alice\0" + b"x" * (LARGEST_FRAME_BYTES - 1_000))
    talk = Talk(exchange, "a token that is too large")
    talk.handshake()
    talk.token("too large", b"\0alice\0" + b"x" * LARGEST_FRAME_BYTES)
    talk = Talk(exchange, "two tokens")
    talk.log_in()
    talk.token("right again", ALICE.token)
    talk.token("wrong then", TOKENS["wrong password"])
    talk.served()


def raw_tokens(exchange: Exchange) -> None:
    for name, token in TOKENS.items():
        talk = Talk(exchange, f"raw token: {name}")
        talk.handshake(version=0)
        talk.raw_token(name, token)
        talk.served()
    talk = Talk(exchange, "raw, but in a request")
    talk.handshake(version=0)
    talk.token("right", ALICE.token)
    talk = Talk(exchange, "raw, then in a request")
    talk.handshake(version=0)
    talk.raw_token("right", ALICE.token)
    talk.token("again", ALICE.token)
    talk.served()


def other_requests(exchange: Exchange, things: Things) -> None:
    """Of every API, in the latest version that both serve."""
    for asked, question in {**QUESTIONS, **CHANGING}.items():
        request = question.request(things)
        versions = exchange.versions(type(request), lowest=question.versions[0], highest=question.versions[1])
        if asked == "AddPartitionsToTxn of a broker":
            continue
        for version in versions[-1:]:
            connection = exchange.connect_as_nobody()
            exchange.ask(f"first of all: {asked}", request, version, connection=connection)
            connection = exchange.connect_as_nobody()
            exchange.call(SaslHandshakeRequest("PLAIN"), 1, connection=connection)
            exchange.ask(f"in place of a token: {asked}", request, version, connection=connection)
    for version in (0, 3):
        talk = Talk(exchange, f"ApiVersions {version} in place of a token")
        talk.handshake()
        talk.api_versions(version)
        talk.handshake()
    for version in (0, 1):
        talk = Talk(exchange, f"handshake {version} in place of a token")
        talk.handshake()
        talk.handshake(version=version)
        talk.handshake()


def again(exchange: Exchange, dave: str) -> None:
    """Authenticating a second time on a connection whose session has no end."""
    talk = Talk(exchange, "again")
    talk.log_in()
    talk.handshake()
    talk.token("right", ALICE.token)
    talk.served()
    talk.handshake()  # sooner than a second after the last
    talk.served()
    time.sleep(1.1)
    talk.handshake()
    talk.token("right", ALICE.token)
    talk.served()
    for name, second in {"as another": BOB.token, "with a wrong password": TOKENS["wrong password"]}.items():
        talk = Talk(exchange, f"again {name}")
        talk.log_in()
        talk.handshake()
        talk.token(name, second)
        talk.served()
    talk = Talk(exchange, "again by another mechanism")
    talk.log_in()
    talk.handshake(SCRAM)
    talk.token("first", f"n,,n={dave},r=nonce".encode())
    talk = Talk(exchange, "again by a mechanism that is not there")
    talk.log_in()
    talk.handshake("NOTHING")
    talk.served()
    talk = Talk(exchange, "again by raw tokens")
    talk.log_in()
    talk.handshake(version=0)
    talk.raw_token("right", ALICE.token)
    talk.served()
    for name, step in {
        "Metadata": Talk.served,
        "ApiVersions": Talk.api_versions,
        "a handshake": Talk.handshake,
    }.items():
        talk = Talk(exchange, f"{name} in place of the second token")
        talk.log_in()
        talk.handshake()
        step(talk)
        talk.served()
    talk = Talk(exchange, "ApiVersions when all is done")
    talk.log_in()
    talk.api_versions()
    talk.api_versions()
    talk.served()


def again_where_sessions_end(exchange: Exchange, dave: str, erin: str) -> None:
    talk = Talk(exchange, "renewed")
    talk.scram(dave)
    talk.scram(dave)
    talk.served()
    talk.handshake(SCRAM)  # sooner than a second after the last
    talk.served()
    time.sleep(1.1)
    talk.scram(dave)
    talk.served()
    for name, (user, password) in {
        "as another": (erin, PASSWORD),
        "with a wrong password": (dave, "wrong"),
    }.items():
        talk = Talk(exchange, f"renewed {name}")
        talk.scram(dave)
        talk.scram(user, password)
        talk.served()
    talk = Talk(exchange, "renewed by another mechanism")
    talk.scram(dave)
    talk.handshake()
    talk.token("right", ALICE.token)
    for mechanism in ("NOTHING", ""):
        talk = Talk(exchange, f"renewed by the mechanism {mechanism!r}")
        talk.scram(dave)
        talk.handshake(mechanism)
        talk.served()
    talk = Talk(exchange, "renewed by raw tokens")
    talk.scram(dave)
    talk.handshake(SCRAM, 0)
    client = scramp.ScramClient([SCRAM], dave, PASSWORD)
    first_reply = talk.raw_token("first", client.get_client_first().encode())
    if first_reply:
        client.set_server_first(first_reply.decode())
        talk.raw_token("final", client.get_client_final().encode())
    talk.served()
    for name, step in {
        "Metadata": Talk.served,
        "ApiVersions": Talk.api_versions,
        "a handshake": Talk.handshake,
    }.items():
        talk = Talk(exchange, f"{name} in place of the token that renews")
        talk.scram(dave)
        talk.handshake(SCRAM)
        step(talk)
        talk.served()
    talk = Talk(exchange, "a token without a handshake that renews")
    talk.scram(dave)
    talk.token("first", f"n,,n={dave},r=nonce".encode())
    talk.served()


def scram(exchange: Exchange, dave: str) -> None:
    for version in (0, 1, 2):
        talk = Talk(exchange, f"SCRAM by SaslAuthenticate {version}")
        talk.scram(dave, version=version)
        talk.served()
    Talk(exchange, "SCRAM with a wrong password").scram(dave, "wrong")
    Talk(exchange, "SCRAM of an unknown user").scram(exchange.name("mallory"))
    for name, first in SCRAM_FIRSTS.items():
        talk = Talk(exchange, f"SCRAM begins with {name}")
        talk.handshake(SCRAM)
        talk.token(name, first.replace(b"dave", dave.encode()))
    for name, final in {
        "nothing": b"",
        "another nonce": b"c=biws,r=other,p=" + b"A" * 43 + b"=",
        "no proof": b"c=biws,r=nonce",
        "its first once more": f"n,,n={dave},r=nonce".encode(),
    }.items():
        talk = Talk(exchange, f"SCRAM ends with {name}")
        talk.handshake(SCRAM)
        talk.token("first", f"n,,n={dave},r=nonce".encode())
        talk.token(name, final)
    for header in ("y,,", f"n,a={dave},"):
        talk = Talk(exchange, f"SCRAM with the header {exchange.plain_text(header)}")
        talk.handshake(SCRAM)
        talk.token("first", f"{header}n={dave},r=nonce".encode())
    talk = Talk(exchange, "SCRAM with raw tokens")
    talk.handshake(SCRAM, 0)
    client = scramp.ScramClient([SCRAM], dave, PASSWORD)
    first_reply = talk.raw_token("first", client.get_client_first().encode())
    if first_reply:
        client.set_server_first(first_reply.decode())
        talk.raw_token("final", client.get_client_final().encode())
    talk.served()


def sessions_end(exchange: Exchange, dave: str) -> None:
    """All at once, so that they are waited for once."""
    talks = {}
    for name in ("Metadata", "ApiVersions", "a token", "a handshake", "in time", "Metadata, SaslAuthenticate 0"):
        talk = talks[name] = Talk(exchange, f"session ends: {name}")
        talk.scram(dave, version=0 if "0" in name else 2)
        talk.served()
    time.sleep(EXPIRED_AFTER_S - 1.5)
    talks["in time"].scram(dave)
    time.sleep(1.5)
    talks["Metadata"].served()
    talks["Metadata, SaslAuthenticate 0"].served()
    talks["ApiVersions"].api_versions()
    talks["a token"].token("first", f"n,,n={dave},r=nonce".encode())
    talks["a handshake"].scram(dave)
    talks["a handshake"].served()
    talks["in time"].served()
