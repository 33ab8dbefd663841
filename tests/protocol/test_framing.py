"""Frames are found whole or not at all, and replies are framed without copying records."""

from __future__ import annotations

import pytest

from fencepost.protocol.framing import find_frame, response_frame
from fencepost.protocol.messages.api_versions import ApiVersionsResponse
from fencepost.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fencepost.protocol.messages.transactions import EndTxnResponse
from fencepost.protocol.schema import DecodeError, decode


def test_a_frame_is_found_once_it_is_there_as_a_whole() -> None:
    buffer = b"..\x00\x00\x00\x03abc\x00\x00\x00\x00"
    assert [find_frame(buffer, 2, end, 100) for end in range(2, 9)] == [None] * 7
    assert find_frame(buffer, 2, 9, 100) == (6, 9)
    assert find_frame(buffer, 9, 13, 100) == (13, 13)


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00000065", "7fffffff"])
def test_an_impossible_length_is_refused_as_soon_as_it_is_known(length: str) -> None:
    with pytest.raises(DecodeError):
        find_frame(bytes.fromhex(length), 0, 4, 100)


def test_the_largest_frame_allowed_is_allowed() -> None:
    assert find_frame(bytes.fromhex("00000064") + bytes(100), 0, 104, 100) == (4, 104)


def test_a_reply_is_framed_with_its_header() -> None:
    assert b"".join(response_frame(9, EndTxnResponse(), 0)).hex() == "0000000a" + "00000009" + "00000000" + "0000"
    assert b"".join(response_frame(9, EndTxnResponse(), 3)).hex() == "0000000c" + "0000000900" + "00000000000000"


def test_a_reply_to_api_versions_has_the_old_header() -> None:
    frame = b"".join(response_frame(1, ApiVersionsResponse(), 4))
    assert decode(ApiVersionsResponse, frame[8:], 4) == ApiVersionsResponse()


def test_the_length_counts_all_chunks_and_records_stay_where_they_are() -> None:
    records = memoryview(bytes(5_000))
    partition = PartitionData(records=records, aborted_transactions=None)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition] * 2)])
    chunks = response_frame(3, response, 12)
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert sum(chunk is records for chunk in chunks) == 2
    assert decode(FetchResponse, frame[9:], 12) == response
