"""One connection without sockets: versions, frames and log-in, also with a broker that is old, or is none."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.errors import ClusterError, LogInNeededError, LogInRefusedError, NotServedError, UnreachableError
from fencepost.client.log_in import Credentials
from fencepost.client.session import LARGEST_FRAME_BYTES, LARGEST_OPENING_FRAME_BYTES, Opening, Sent, Session
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import response_frame
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

WHERE = "broker-1:9092"
OF_TODAY = dict.fromkeys(ApiKey, (0, 99))
ALICE = Credentials("PLAIN", "alice", "secret")


def frame_of(sent: Sent, reply: Any) -> bytes:
    return b"".join(response_frame(sent.number, reply, sent.version))[4:]


def opened(served: dict[ApiKey, tuple[int, int]]) -> Session:
    session = Session(WHERE, "a test")
    opening = session.open(None, "")
    finish(opening, frame_of(next(opening), versions(served)))
    return session


def versions(served: dict[ApiKey, tuple[int, int]]) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in served.items()])


def finish(opening: Opening, frame: bytes) -> None:
    with pytest.raises(StopIteration):
        opening.send(frame)


def test_both_sides_use_the_highest_version_that_they_have() -> None:
    assert opened({ApiKey.METADATA: (0, 4)}).prepare(MetadataRequest()).version == 4
    assert opened(OF_TODAY).prepare(MetadataRequest()).version == 13


def test_topics_go_by_their_names_whatever_a_broker_has() -> None:
    assert opened(OF_TODAY).prepare(ProduceRequest(acks=1)).version == 12


def test_a_commit_with_the_ids_of_its_topics_is_for_these_topics_alone() -> None:
    named = OffsetCommitRequestTopic(name="orders", topic_id=bytes(range(16)))
    session = opened({ApiKey.OFFSET_COMMIT: (2, 10)})
    assert session.prepare(OffsetCommitRequest("g", topics=[named])).version == 10
    assert session.prepare(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(name="orders")])).version == 9
    assert opened({ApiKey.OFFSET_COMMIT: (2, 8)}).prepare(OffsetCommitRequest("g", topics=[named])).version == 8


def test_an_api_that_a_broker_does_not_have_is_named() -> None:
    with pytest.raises(NotServedError, match="this cluster does not serve Metadata"):
        opened({ApiKey.PRODUCE: (3, 9)}).prepare(MetadataRequest())
    with pytest.raises(NotServedError):
        opened({ApiKey.METADATA: (90, 99)}).prepare(MetadataRequest())


def test_offsets_of_several_groups_need_a_broker_of_kafka_3_and_those_of_one_do_not() -> None:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    session = opened({ApiKey.OFFSET_FETCH: (0, 7)})
    with pytest.raises(NotServedError, match="OffsetFetch"):
        session.prepare(OffsetFetchRequest(groups=groups))
    assert session.prepare(OffsetFetchRequest("g", None, groups)).version == 7


def test_a_produce_without_acks_has_no_answer() -> None:
    session = opened(OF_TODAY)
    assert not session.prepare(ProduceRequest(acks=0)).has_answer
    assert session.prepare(ProduceRequest(acks=-1)).has_answer


def test_an_answer_has_to_be_that_of_the_request() -> None:
    session = opened(OF_TODAY)
    first, second = (session.prepare(FindCoordinatorRequest(key="g", coordinator_keys=["g"])) for _ in range(2))
    with pytest.raises(ClusterError, match="broker-1:9092 cannot be read: an answer to another request"):
        session.answer(second, frame_of(first, FindCoordinatorResponse()))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\2", b"\0\0\0\2\0\xff\xff\xff\xff\x0f" * 9])
def test_an_answer_that_cannot_be_read_is_an_error_of_that_broker(frame: bytes) -> None:
    session = opened(OF_TODAY)
    with pytest.raises(ClusterError, match="the answer of broker-1:9092 cannot be read"):
        session.answer(session.prepare(MetadataRequest()), frame)


@pytest.mark.parametrize("length", [-1, 0, 3, LARGEST_FRAME_BYTES + 1])
def test_a_length_that_no_broker_sends_is_refused(length: int) -> None:
    with pytest.raises(UnreachableError, match="what answers at broker-1:9092 is not a Kafka broker"):
        opened(OF_TODAY).frame_bytes(length.to_bytes(4, "big", signed=True))


def test_who_has_not_been_logged_in_to_may_send_a_megabyte_at_once() -> None:
    session = Session(WHERE, "a test")
    assert session.frame_bytes(LARGEST_OPENING_FRAME_BYTES.to_bytes(4, "big")) == LARGEST_OPENING_FRAME_BYTES
    with pytest.raises(UnreachableError):
        session.frame_bytes((LARGEST_OPENING_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert opened(OF_TODAY).frame_bytes(LARGEST_FRAME_BYTES.to_bytes(4, "big")) == LARGEST_FRAME_BYTES


def test_a_broker_from_before_version_3_of_api_versions_is_named_as_too_old() -> None:
    opening = Session(WHERE, "a test").open(None, "")
    old = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    sent = next(opening)
    with pytest.raises(ClusterError, match=r"broker-1:9092 does not answer as a Kafka broker of 2\.4 or newer"):
        opening.send(frame_of(sent._replace(version=0), old))


def test_a_log_in_asks_for_the_mechanism_and_sends_the_password() -> None:
    opening = Session(WHERE, "a test").open(ALICE, "")
    sent = opening.send(frame_of(next(opening), versions(OF_TODAY)))
    assert sent.request.mechanism == "PLAIN"
    sent = opening.send(frame_of(sent, SaslHandshakeResponse()))
    assert sent.request.auth_bytes == b"\0alice\0secret"
    finish(opening, frame_of(sent, SaslAuthenticateResponse()))


def test_a_log_in_that_a_broker_refuses_has_its_words() -> None:
    opening = Session(WHERE, "a test").open(ALICE, "")
    sent = opening.send(frame_of(next(opening), versions(OF_TODAY)))
    sent = opening.send(frame_of(sent, SaslHandshakeResponse()))
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user")
    with pytest.raises(LogInRefusedError, match="no such user"):
        opening.send(frame_of(sent, refusal))


def test_a_mechanism_that_a_broker_lacks_is_answered_with_those_that_it_has() -> None:
    opening = Session(WHERE, "a test").open(ALICE, "")
    sent = opening.send(frame_of(next(opening), versions(OF_TODAY)))
    reply = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256"])
    with pytest.raises(LogInNeededError) as needed:
        opening.send(frame_of(sent, reply))
    assert needed.value.mechanisms == ("SCRAM-SHA-256",)


def test_a_value_that_is_longer_than_its_field_is_an_error_of_its_user() -> None:
    session = opened({ApiKey.FIND_COORDINATOR: (4, 6)})
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g" * 40_000])
    with pytest.raises(ClusterError, match=r"it cannot be asked: .*longer than 32767 bytes"):
        session.prepare(request)
