"""The codecs of record batches: round trips, other people's encoders, bombs and garbage."""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python

from fencepost.protocol.compression import (
    AT_ONCE_BYTES,
    COMPRESSED_AT_ONCE_BYTES,
    Codec,
    TooLargeForOneStepError,
    compress,
    decompress,
)
from fencepost.protocol.primitives import DecodeError

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
STREAMS = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
TEXT = b"all records of a batch are compressed as one stream; " * 2000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "content", [b"", b"a", TEXT, bytes(range(256)) * 1000], ids=["empty", "one byte", "text", "long"]
)
def test_compressed_records_decompress_to_the_same(codec: Codec, content: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, content))) == content
    assert bytes(decompress(codec, memoryview(compress(codec, memoryview(content))))) == content


@pytest.mark.parametrize("codec", COMPRESSING)
def test_text_becomes_much_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) // 10


def test_no_codec_copies_nothing() -> None:
    content = memoryview(TEXT)
    assert decompress(Codec.NONE, content) is content


def test_gzip_interoperates_with_the_standard_library() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert bytes(decompress(Codec.GZIP, gzip.compress(TEXT))) == TEXT


def test_lz4_is_the_frame_format_that_other_readers_know() -> None:
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    assert bytes(decompress(Codec.LZ4, lz4.frame.compress(TEXT, store_size=False))) == TEXT
    assert bytes(decompress(Codec.LZ4, kafka_python.lz4_encode(TEXT))) == TEXT
    assert kafka_python.lz4_decode(compress(Codec.LZ4, TEXT)) == TEXT


def test_lz4_blocks_do_not_depend_on_each_other_for_the_java_reader_refuses_that() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "independent blocks"


def test_zstd_reads_a_stream_that_does_not_state_its_size() -> None:
    compressor = cramjam.zstd.Compressor(3)
    compressor.compress(TEXT)
    streamed = bytes(compressor.flush()) + bytes(compressor.finish())
    assert bytes(decompress(Codec.ZSTD, streamed)) == TEXT


def test_snappy_is_framed_as_snappy_java_does_it() -> None:
    framed = compress(Codec.SNAPPY, bytes(70_000))
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes = []
    position = 16
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        position += 4
        sizes.append(cramjam.snappy.decompress_raw_len(framed[position : position + length]))
        position += length
    assert sizes == [32 * 1024, 32 * 1024, 70_000 - 64 * 1024]


def test_snappy_without_frame_is_read_too() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_content_of_exactly_the_bound_is_let_through_and_a_byte_more_is_not(codec: Codec) -> None:
    compressed = compress(codec, bytes(1_000_000))
    assert bytes(decompress(codec, compressed, maximum_bytes=1_000_000)) == bytes(1_000_000)
    with pytest.raises(DecodeError):
        decompress(codec, compressed, maximum_bytes=999_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_content_that_would_grow_beyond_the_bound_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(DecodeError, match="larger than 100000 bytes"):
        decompress(codec, bomb, maximum_bytes=100_000)


def test_a_snappy_block_that_promises_four_gigabytes_is_refused_at_once() -> None:
    promise = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    for content in (promise, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(promise)) + promise):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, content)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_content_that_is_cut_short_is_refused(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    for length_bytes in (0, 1, 10, len(compressed) // 2, len(compressed) - 1):
        with pytest.raises(DecodeError):
            decompress(codec, compressed[:length_bytes])


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
def test_garbage_is_refused_or_is_by_chance_content(codec: Codec, garbage: bytes) -> None:
    for content in (garbage, compress(codec, garbage)[: len(garbage)], b"\x82SNAPPY\x00" + garbage):
        try:
            decompress(codec, content, maximum_bytes=100_000)
        except DecodeError:
            continue


@given(st.sampled_from(COMPRESSING), st.data())
def test_content_with_changed_bytes_is_refused_or_is_other_content(codec: Codec, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, TEXT[:3000]))
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(codec, compressed, maximum_bytes=100_000)
    except DecodeError:
        return


@pytest.mark.parametrize("codec", STREAMS)
def test_decompression_in_one_step_reuses_its_memory(codec: Codec) -> None:
    first = decompress(codec, compress(codec, b"a" * 900_000), is_one_step=True)
    assert first == b"a" * 900_000
    assert decompress(codec, compress(codec, b"b" * 900_000), is_one_step=True) == b"b" * 900_000
    assert first == b"b" * 900_000


@pytest.mark.parametrize("codec", [*STREAMS, Codec.SNAPPY])
def test_one_step_decompresses_so_much_and_no_more(codec: Codec) -> None:
    content = bytes(AT_ONCE_BYTES)
    assert decompress(codec, compress(codec, content), is_one_step=True) == content
    compressed = compress(codec, content + b"a")
    with pytest.raises(TooLargeForOneStepError):
        decompress(codec, compressed, is_one_step=True)
    assert decompress(codec, compressed) == content + b"a"


@pytest.mark.parametrize("codec", [*STREAMS, Codec.SNAPPY])
def test_one_step_refuses_content_above_its_bound(codec: Codec) -> None:
    with pytest.raises(TooLargeForOneStepError):
        decompress(codec, bytes(COMPRESSED_AT_ONCE_BYTES + 1), is_one_step=True)


@pytest.mark.parametrize("codec", STREAMS)
def test_the_bound_holds_in_one_step(codec: Codec) -> None:
    compressed = compress(codec, b"a" * 60_000)
    assert decompress(codec, compressed, maximum_bytes=60_000, is_one_step=True) == b"a" * 60_000
    with pytest.raises(DecodeError, match="larger than 59999 bytes"):
        decompress(codec, compressed, maximum_bytes=59_999)


def test_snappy_that_claims_more_than_one_step_is_not_tried() -> None:
    claimed = b"\xff\xff\xff\x07" + bytes(10)  # 16 MiB, as a raw block
    with pytest.raises(TooLargeForOneStepError):
        decompress(Codec.SNAPPY, claimed, is_one_step=True)
    with pytest.raises(DecodeError, match="corrupt"):
        decompress(Codec.SNAPPY, claimed)


def test_corrupt_content_that_cannot_hold_much_is_reported_in_one_step() -> None:
    for codec in (Codec.GZIP, Codec.LZ4):
        with pytest.raises(DecodeError, match="corrupt"):
            decompress(codec, b"garbage" * 100, is_one_step=True)
