"""One connection in terms of the protocol: frames, correlation ids, versions, log-in. Pure: drivers move the bytes."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.client.errors import (
    ClusterError,
    LogInNeededError,
    LogInRefusedError,
    NotServedError,
    UnreachableError,
)
from fencepost.client.log_in import Credentials, exchange
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, read_frame_length, request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.primitives import ZERO_UUID, DecodeError, EncodeError
from fencepost.protocol.schema import decode, schema_of

if TYPE_CHECKING:
    import ssl

LARGEST_FRAME_BYTES: Final = 256 * 1024 * 1024
LARGEST_OPENING_FRAME_BYTES: Final = 1024 * 1024
"""Until the log-in is done: who answers may be anybody."""
SMALLEST_FRAME_BYTES: Final = 4
SOFTWARE: Final = "fencepost"

HIGHEST_BY_NAME: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.INIT_PRODUCER_ID: 5,
}
"""Where later versions know topics by their ids, or are not stable yet: the highest version that is used."""

API_VERSIONS_VERSION: Final = 3
"""Sent first. A broker that does not have it answers in version 0, with its own versions."""


@dataclass(frozen=True)
class ClientOptions:
    """How a client connects. tls: None for none; credentials: None for no log-in."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    client_id: str = "fencepost"
    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 15.0


class Sent(NamedTuple):
    """A request as it goes over a connection. frame: its bytes, with the length."""

    number: int
    request: Any
    version: int
    frame: bytes

    @property
    def has_answer(self) -> bool:
        """Whether the broker answers: not a Produce with acks=0."""
        return schema_of(type(self.request)).api_key != ApiKey.PRODUCE or self.request.acks != 0


Opening = Generator[Sent, bytes, None]
"""A generator that yields the requests to send, and gets each answer's frame, without its length."""


class Session:
    """The agreement of both sides of one connection. where: the broker's address, for errors."""

    def __init__(self, where: str, client_id: str) -> None:
        self.where = where
        self.apis: Mapping[int, tuple[int, int]] = {}
        """By API key, the lowest and highest version that the broker serves."""
        self._client_id = client_id
        self._numbers = itertools.count(1)
        self._largest_frame_bytes = LARGEST_OPENING_FRAME_BYTES

    def version_of(self, request: Any, at_most: int | None = None) -> int:
        """The highest version that both sides have, and `at_most`. Raises NotServedError."""
        schema = schema_of(type(request))
        key = schema.api_key
        lowest, highest = self.apis.get(key, (0, -1))
        by_name = highest if _has_topic_ids(request) else HIGHEST_BY_NAME.get(key, highest)
        best = min(highest, schema.versions.last, by_name)
        if at_most is not None:
            best = min(best, at_most)
        if best < max(lowest, schema.versions.first, _lowest(request)):
            raise NotServedError(f"this cluster does not serve {type(request).__name__.removesuffix('Request')}")
        return best

    def prepare(self, request: Any, at_version: int | None = None, *, at_most: int | None = None) -> Sent:
        """Encode a request. Raises NotServedError; ClusterError: a value is longer than its field."""
        chosen = self.version_of(request, at_most) if at_version is None else at_version
        number = next(self._numbers)
        try:
            frame = request_frame(number, self._client_id, request, chosen)
        except EncodeError as error:
            raise ClusterError(f"it cannot be asked: {error}") from None
        return Sent(number, request, chosen, frame)

    def frame_bytes(self, length: bytes) -> int:
        """Read an answer's length from its first four bytes. Raises UnreachableError for one that no broker sends."""
        assert len(length) == LENGTH_BYTES
        try:
            return read_frame_length(length, 0, self._largest_frame_bytes, SMALLEST_FRAME_BYTES)
        except DecodeError:
            raise UnreachableError(f"what answers at {self.where} is not a Kafka broker") from None

    def answer(self, sent: Sent, frame: bytes) -> Any:
        """Decode the frame that answers a request. Raises ClusterError: the connection cannot be used any more."""
        key = schema_of(type(sent.request)).api_key
        try:
            correlation_id, position = read_response_header(frame, response_header_version(key, sent.version))
            if correlation_id != sent.number:
                raise DecodeError("an answer to another request")
            return decode(RESPONSES[key], memoryview(frame), sent.version, position)
        except DecodeError as error:
            raise ClusterError(f"the answer of {self.where} cannot be read: {error}") from None

    def open(self, credentials: Credentials | None, nonce: str) -> Opening:
        """Ask for versions and log in. nonce: random printable text without commas. Raises ClusterError."""
        yield from self._ask_versions()
        if credentials is not None:
            yield from self._log_in(credentials, nonce)
        self._largest_frame_bytes = LARGEST_FRAME_BYTES

    def _ask_versions(self) -> Opening:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=_software_version())
        sent = self.prepare(request, API_VERSIONS_VERSION)
        try:
            reply = self.answer(sent, (yield sent))
        except UnreachableError:
            raise
        except ClusterError as error:
            raise self._not_a_broker() from error
        if reply.error_code:
            raise self._not_a_broker()
        self.apis = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    def _not_a_broker(self) -> ClusterError:
        return ClusterError(f"{self.where} does not answer as a Kafka broker of 2.4 or newer does")

    def _log_in(self, credentials: Credentials, nonce: str) -> Opening:
        sent = self.prepare(SaslHandshakeRequest(mechanism=credentials.mechanism))
        reply = self.answer(sent, (yield sent))
        if reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise LogInNeededError(reply.mechanisms)
        if reply.error_code:
            raise LogInRefusedError("this cluster has no log-in on this listener")
        steps = exchange(credentials, nonce)
        answer: bytes | None = None
        while True:
            try:
                # A generator takes None, and only None, for its first step.
                token = next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                return
            sent = self.prepare(SaslAuthenticateRequest(auth_bytes=token))
            reply = self.answer(sent, (yield sent))
            if reply.error_code:
                raise LogInRefusedError(reply.error_message or "the cluster refused the log-in")
            answer = bytes(reply.auth_bytes)


def _lowest(request: Any) -> int:
    """The first version that can carry a request: OffsetFetch for several groups at once has 8, of Kafka 3.0."""
    is_of_groups = schema_of(type(request)).api_key == ApiKey.OFFSET_FETCH and not request.group_id
    return 8 if is_of_groups else 0


def _has_topic_ids(request: Any) -> bool:
    """Whether it says names and ids, for any version: an OffsetCommit that is meant for these topics alone."""
    is_commit = schema_of(type(request)).api_key == ApiKey.OFFSET_COMMIT
    return is_commit and bool(request.topics) and all(topic.topic_id != ZERO_UUID for topic in request.topics)


def _software_version() -> str:
    try:
        return version("fencepost")
    except PackageNotFoundError:
        return "0"
