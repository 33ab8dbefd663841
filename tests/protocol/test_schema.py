"""What the declaration of a message gives: constructor, equality, repr, slots, defaults; and how it becomes bytes."""

from __future__ import annotations

import copy
import linecache
import pickle
import traceback
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import LeaderIdAndEpoch
from fencepost.protocol.messages.cluster import Cursor, DescribeTopicPartitionsRequest
from fencepost.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from fencepost.protocol.messages.group_offsets import TxnOffsetCommitRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from fencepost.protocol.schema import (
    ZERO_UUID,
    DecodeError,
    EncodeError,
    decode,
    encode,
    encode_chunks,
    field,
    float64,
    int8,
    int32,
    message,
    schema_of,
    struct,
    uint16,
    uint32,
)
from fencepost.protocol.writer import COPIED_RECORDS_BYTES

BIG_RECORDS = b"\x07" * (COPIED_RECORDS_BYTES + 1)


def produce_request(records: Any) -> ProduceRequest:
    partitions = [PartitionProduceData(index=4, records=records), PartitionProduceData(index=5, records=b"tail")]
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])


@struct
class Inner:
    """A nested struct, tagged or nullable."""

    number: int8 = 0
    note: str | None = None


@struct
class Point:
    """A nested struct of fixed width."""

    x: int8 = 0
    y: int8 = 0


@message(versions="0-2", flexible="1+")
class EveryType:
    """Wire types and combinations that Kafka's own messages use rarely or never."""

    unsigned_short: uint16 = 0
    unsigned: uint32 = 0
    real: float64 = 0.0
    names: list[str] = []
    nested: Inner = Inner()
    first: Point = Point()
    second: Point = Point()
    maybe: Inner | None = field(nullable="1+", default=Inner())
    tagged_number: int32 = field(versions="1+", tag=1, default=-1)
    tagged_inner: Inner = field(versions="1+", tag=300, default=Inner())
    tagged_inners: list[Inner] = field(versions="2+", tag=0, default=[])


# What a class offers


def test_the_constructor_takes_positions_and_keywords() -> None:
    assert EndTxnRequest("id", 7, producer_epoch=3, committed=True) == EndTxnRequest(
        transactional_id="id", producer_id=7, producer_epoch=3, committed=True
    )


def test_an_unknown_field_is_refused_by_constructor_and_instance() -> None:
    with pytest.raises(TypeError):
        EndTxnRequest(transaction="id")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        EndTxnRequest().transaction = "id"  # type: ignore[attr-defined]
    assert not hasattr(EndTxnRequest(), "__dict__")


def test_equality_looks_at_class_and_values() -> None:
    assert EndTxnResponse(producer_id=1) == EndTxnResponse(producer_id=1)
    assert EndTxnResponse(producer_id=1) != EndTxnResponse(producer_id=2)
    others: list[object] = [EndTxnRequest(), 7, None]
    assert EndTxnResponse() not in others


def test_messages_are_mutable_and_so_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(EndTxnResponse())


def test_the_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(EndTxnRequest(transactional_id="x")) == "EndTxnRequest(transactional_id='x')"
    assert repr(PartitionProduceData(records=memoryview(b"abc"))) == "PartitionProduceData(records=<3 bytes>)"
    assert repr(produce_request(None)).startswith(
        "ProduceRequest(topic_data=[TopicProduceData(name='t', partition_data=["
    )


def test_lists_are_not_shared_between_objects() -> None:
    first, second = MetadataRequest(), MetadataRequest()
    assert first.topics is not None
    first.topics.append(MetadataRequestTopic(name="a"))
    assert second.topics == []
    decoded = decode(FetchResponse, encode(FetchResponse(), 4), 4)
    decoded.node_endpoints.append(None)  # type: ignore[arg-type]
    assert decode(FetchResponse, encode(FetchResponse(), 4), 4).node_endpoints == []


def test_a_shared_default_struct_refuses_changes() -> None:
    partition = PartitionData()
    with pytest.raises(AttributeError, match="shared default"):
        partition.current_leader.leader_id = 3
    partition.current_leader = LeaderIdAndEpoch(leader_id=3)
    assert partition.current_leader.leader_id == 3
    assert PartitionData().current_leader == LeaderIdAndEpoch()


def test_copies_and_pickles_are_equal_and_take_changes() -> None:
    original = FetchRequest(rack_id="r")
    for twin in (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert twin == original
    twin.replica_state.replica_id = 4
    assert original.replica_state == ReplicaState()


def test_a_class_knows_its_key_and_versions() -> None:
    schema = schema_of(EndTxnRequest)
    assert (schema.api_key, schema.versions.first, schema.versions.last, schema.flexible.first) == (26, 0, 5, 3)
    attributes: Any = EndTxnRequest
    assert (attributes.api_key, attributes.minimum_version, attributes.maximum_version) == (26, 0, 5)
    with pytest.raises(TypeError):
        schema_of(MetadataRequestTopic)


def test_a_field_without_default_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="no default"):

        @struct
        class Incomplete:
            number: int8


def test_an_integer_without_width_cannot_be_compiled() -> None:
    @message(versions="0")
    class Vague:
        number: int = 0

    with pytest.raises(TypeError, match="int32"):
        encode(Vague(), 0)


# Bytes


def test_error_codes_are_written_as_they_are() -> None:
    assert bytes(encode(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED), 0)) == bytes(4) + b"\x00\x5a"


def test_a_field_that_the_version_lacks_is_left_out_and_read_as_its_default() -> None:
    response = EndTxnResponse(producer_id=7, producer_epoch=1)
    assert decode(EndTxnResponse, encode(response, 4), 4) == EndTxnResponse()
    assert decode(EndTxnResponse, encode(response, 5), 5) == response


def test_all_wire_types_survive_a_round_trip() -> None:
    value = EveryType(
        unsigned_short=65_535,
        unsigned=2**32 - 1,
        real=-0.5,
        names=["", "é", "x" * 200],
        nested=Inner(-128, "é"),
        first=Point(1, 2),
        second=Point(3, 4),
        maybe=None,
        tagged_number=5,
        tagged_inner=Inner(number=1),
        tagged_inners=[Inner(2), Inner(3, "n")],
    )
    assert decode(EveryType, encode(value, 2), 2) == value


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_when_set() -> None:
    start = bytes(14) + b"\x01" + bytes(3) + bytes(6) + b"\x01" + bytes(3)
    value = EveryType(tagged_number=5, tagged_inner=Inner(number=1), tagged_inners=[Inner(2)])
    tags = b"\x03" + b"\x00\x04\x02\x02\x00\x00" + b"\x01\x04\x00\x00\x00\x05" + b"\xac\x02\x03\x01\x00\x00"
    assert bytes(encode(value, 2)) == start + tags
    assert bytes(encode(EveryType(), 2)) == start + b"\x00"


def test_unknown_tagged_fields_are_skipped_beside_known_ones() -> None:
    known = bytes(encode(EveryType(tagged_number=5), 2))
    start, tag = known[:-7], known[-6:]
    assert known == start + b"\x01" + tag
    unknown = b"\x07\x02ab", b"\xff\x7f\x00"
    widened = start + b"\x03" + tag + unknown[0] + unknown[1]
    assert decode(EveryType, widened, 2) == EveryType(tagged_number=5)
    bare = bytes(encode(EndTxnRequest(), 3))
    assert decode(EndTxnRequest, bare[:-1] + b"\x02" + unknown[0] + unknown[1], 3) == EndTxnRequest()


def test_more_unknown_tagged_fields_than_one_byte_counts_are_skipped() -> None:
    bare = bytes(encode(EndTxnRequest(), 3))
    many = b"".join(bytes((tag, 1, 0)) for tag in range(100)) * 2
    assert decode(EndTxnRequest, bare[:-1] + b"\xc8\x01" + many, 3) == EndTxnRequest()


def test_a_known_tagged_field_of_the_wrong_size_is_refused() -> None:
    start = bytes(encode(EveryType(), 2))[:-1]
    with pytest.raises(DecodeError, match="tagged_number"):
        decode(EveryType, start + b"\x01\x01\x05\x00\x00\x00\x05\x00", 2)


def test_a_nullable_struct_is_announced_by_one_byte() -> None:
    absent = DescribeTopicPartitionsRequest()
    present = DescribeTopicPartitionsRequest(cursor=Cursor("t", 2))
    assert bytes(encode(absent, 0))[-2:] == b"\xff\x00"
    assert bytes(encode(present, 0)).endswith(b"\x01" + b"\x02t" + b"\x00\x00\x00\x02" + b"\x00" + b"\x00")
    assert decode(DescribeTopicPartitionsRequest, encode(present, 0), 0) == present
    assert decode(DescribeTopicPartitionsRequest, encode(absent, 0), 0) == absent


def test_null_and_empty_arrays_differ() -> None:
    for version in (1, 8, 9, 13):
        choices: tuple[list[MetadataRequestTopic] | None, ...] = (None, [])
        for topics in choices:
            request = MetadataRequest(topics=topics)
            assert decode(MetadataRequest, encode(request, version), version).topics == topics


def test_null_where_the_version_does_not_allow_it_is_refused_both_ways() -> None:
    with pytest.raises(EncodeError, match="topics"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(DecodeError, match="null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_decoding_can_start_behind_a_header() -> None:
    request = EndTxnRequest(transactional_id="x", producer_id=1)
    assert decode(EndTxnRequest, b"header" + encode(request, 5), 5, 6) == request


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read(kind: Any) -> None:
    request = EndTxnRequest(transactional_id="x", producer_id=1)
    assert decode(EndTxnRequest, kind(encode(request, 5)), 5) == request
    assert decode(ProduceRequest, kind(encode(produce_request(b"r"), 9)), 9) == produce_request(b"r")


def test_decoded_values_other_than_records_do_not_depend_on_the_buffer() -> None:
    buffer = bytearray(encode(TxnOffsetCommitRequest(group_id="g"), 3))
    request = decode(TxnOffsetCommitRequest, memoryview(buffer), 3)
    buffer[:] = bytes(len(buffer))
    assert request == TxnOffsetCommitRequest(group_id="g")


# Records


@pytest.mark.parametrize("version", [3, 9, 12])
def test_records_are_read_as_a_view_of_the_buffer(version: int) -> None:
    buffer = bytearray(encode(produce_request(BIG_RECORDS), version))
    records = decode(ProduceRequest, buffer, version).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer
    assert records == BIG_RECORDS


@pytest.mark.parametrize("version", [3, 9, 12])
def test_big_records_are_a_chunk_of_their_own_and_not_copied(version: int) -> None:
    view = memoryview(BIG_RECORDS)
    chunks = encode_chunks(produce_request(view), version)
    assert [type(chunk) for chunk in chunks] == [bytearray, memoryview, bytearray]
    assert chunks[1] is view
    assert b"".join(chunks) == encode(produce_request(view), version)


@pytest.mark.parametrize("records", [None, b"", b"small", bytearray(b"small"), memoryview(b"small")])
def test_small_records_are_part_of_the_chunk(records: Any) -> None:
    assert len(encode_chunks(produce_request(records), 9)) == 1
    again = decode(ProduceRequest, encode(produce_request(records), 9), 9)
    assert again == produce_request(records)


def test_chunks_continue_the_callers_buffer() -> None:
    out = bytearray(b"head")
    chunks = encode_chunks(EndTxnRequest(transactional_id="x"), 3, out)
    assert chunks == [b"head" + encode(EndTxnRequest(transactional_id="x"), 3)]
    assert chunks[0] is out


def test_a_fetch_response_with_errors_and_leaders_round_trips() -> None:
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=bytes(range(16)),
                partitions=[
                    PartitionData(
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        current_leader=LeaderIdAndEpoch(2, 5),
                        diverging_epoch=EpochEndOffset(epoch=1),
                        aborted_transactions=None,
                        records=b"",
                    ),
                    PartitionData(records=BIG_RECORDS),
                ],
            )
        ]
    )
    assert decode(FetchResponse, encode(response, 18), 18) == response


# What cannot be written


@pytest.mark.parametrize(
    ("request_object", "named"),
    [
        pytest.param(EndTxnRequest(transactional_id=None), "transactional_id", id="null"),  # type: ignore[arg-type]
        pytest.param(EndTxnRequest(producer_id=2**63), "producer_id", id="too large"),
        pytest.param(EndTxnRequest(producer_epoch="1"), "producer_epoch", id="another type"),  # type: ignore[arg-type]
        pytest.param(EndTxnRequest(transactional_id="x" * 40_000), "transactional_id", id="too long"),
        pytest.param(EndTxnRequest(transactional_id="\udfff"), "transactional_id", id="no character"),
    ],
)
@pytest.mark.parametrize("version", [0, 5])
def test_a_value_that_a_field_cannot_carry_is_named(request_object: EndTxnRequest, named: str, version: int) -> None:
    with pytest.raises(EncodeError, match=f"EndTxnRequest v{version}: .*{named}"):
        encode(request_object, version)


def test_an_undeclared_version_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="no version 6"):
        encode(EndTxnRequest(), 6)


def test_generated_source_shows_in_tracebacks() -> None:
    with pytest.raises(EncodeError) as caught:
        encode(EndTxnRequest(producer_id=2**63), 3)
    assert "message.producer_id" in "".join(traceback.format_exception(caught.value))
    assert "<write EndTxnRequest v3>" in linecache.cache


def test_the_zero_uuid_is_sixteen_zero_bytes() -> None:
    assert bytes(16) == ZERO_UUID
    assert MetadataRequestTopic().topic_id == ZERO_UUID


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize("text", ["x" * 40_000, "é" * 20_000, "\N{GRINNING FACE}" * 9_000])
def test_a_message_for_people_is_cut_where_it_is_longer_than_its_field(version: int, text: str) -> None:
    topic = CreatableTopicResult(name="bad", error_message=text)
    encoded = encode(CreateTopicsResponse(topics=[topic]), version)
    (decoded,) = decode(CreateTopicsResponse, encoded, version).topics
    assert decoded.error_message is not None
    assert len(decoded.error_message.encode()) <= 0x7FFF
    assert decoded.error_message.endswith("…")
    assert text.startswith(decoded.error_message[:-1])
    assert len(decoded.error_message.encode()) > 0x7FFF - 8
