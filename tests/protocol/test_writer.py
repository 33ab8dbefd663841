"""Writers of messages: lengths in bytes, and records that are not copied."""

from __future__ import annotations

import pytest

from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.primitives import MAXIMUM_STRING_BYTES
from fencepost.protocol.schema import EncodeError, encode, encode_chunks
from fencepost.protocol.writer import COPIED_RECORDS_BYTES, shortened


def produce(records: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])


def test_a_string_is_measured_in_bytes_of_utf_8() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="é")])
    assert bytes(encode(request, 1)) == b"\0\0\0\x01" + b"\0\x02" + "é".encode()


def test_large_records_are_a_chunk_of_their_own_and_small_ones_are_copied() -> None:
    large = bytes(COPIED_RECORDS_BYTES + 1)
    for records, is_copied in ((b"small", True), (large, False)):
        out = bytearray()
        chunks = encode_chunks(produce(records), 9, out) or []
        assert any(chunk is records for chunk in chunks) is not is_copied


@pytest.mark.parametrize("name", [None, 7])
def test_a_value_that_does_not_fit_its_field_is_named(name: object) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="name"):
        encode(request, 1)


def test_a_text_that_is_too_long_for_a_string_is_cut_between_characters() -> None:
    text = shortened(("x" + "é" * 40_000).encode())
    assert len(text) <= MAXIMUM_STRING_BYTES
    assert text.decode().endswith("é…")
