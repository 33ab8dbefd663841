"""The five codecs of record batches, as Kafka frames them; decompression has a bound on its output.

gzip, zstd and the lz4 frame format are used as they are. Snappy is framed by xerial's snappy-java: a 16-byte header,
then blocks, each a 4-byte length and raw snappy of up to 32 KiB; some clients send one raw snappy block instead, which
is accepted, too.
Source: Kafka's CompressionType, SnappyFactory and Lz4BlockOutputStream; snappy-java's SnappyOutputStream.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from enum import IntEnum
from mmap import mmap
from typing import TYPE_CHECKING, Final

from fencepost.protocol.lazy_import import lazy_module
from fencepost.protocol.primitives import Buffer, DecodeError

if TYPE_CHECKING:
    import cramjam
else:
    cramjam = lazy_module("cramjam")

MAXIMUM_DECOMPRESSED_BYTES: Final = 100 * 1024 * 1024
"""The default bound: the most that one request may carry uncompressed (Kafka's `socket.request.max.bytes`)."""


AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""The most that is decompressed in one step: some milliseconds with any codec."""
COMPRESSED_AT_ONCE_BYTES: Final = 512 * 1024
"""Longer content is not tried in one step: most of it holds more than `AT_ONCE_BYTES`."""


_ONE_STEP_MEMORY: Final = memoryview(mmap(-1, AT_ONCE_BYTES))
"""Pages that were never written to take no memory."""


class TooLargeForOneStepError(Exception):
    """The work takes longer than one step of an event loop may; nothing was changed."""


class Codec(IntEnum):
    """Compression of the records of a batch; the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS: Final[Mapping[Codec, int]] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Compression levels in Kafka's numbers; snappy has none."""

_GZIP_LEVEL = 6  # the library's level for -1
_FAST_LZ4_LEVEL = 1  # 9 is Kafka's number for the fast compressor; all others select the thorough one

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">I")

_LEAST_GUESS_BYTES = 16 * 1024
_GREATEST_RATIOS = {Codec.GZIP: 1_032, Codec.LZ4: 255}  # of output to input bytes; zstd has no useful one
_GUESSED_RATIO = 8


def compress(codec: Codec, content: Buffer, level: int | None = None) -> bytes:
    """Compress the records section of a batch. level: in Kafka's numbers, by default the codec's default."""
    default_level = DEFAULT_LEVELS.get(codec, 0)
    level = default_level if level is None else level
    match codec:
        case Codec.NONE:
            return bytes(content)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(content, level=_GZIP_LEVEL if level == default_level else level))
        case Codec.SNAPPY:
            return _compress_xerial(content)
        case Codec.LZ4:
            # Kafka's Java reader refuses frames whose blocks depend on each other.
            lz4_level = _FAST_LZ4_LEVEL if level == default_level else level
            compressor = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
            compressor.compress(bytes(content))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(content, level=level))


def decompress(
    codec: Codec,
    content: Buffer,
    *,
    maximum_bytes: int = MAXIMUM_DECOMPRESSED_BYTES,
    is_one_step: bool = False,
) -> Buffer:
    """Decompress the records section of a batch. For `Codec.NONE` this is `content` itself, not a copy.

    is_one_step: raise TooLargeForOneStepError if the output may exceed `AT_ONCE_BYTES`; corrupt content may raise
                 it, too. The result may be in memory that the next such call reuses, so only the thread of the
                 event loop makes such calls. The reused memory is several times as fast as new memory.

    Raises DecodeError if the content is corrupt, or its output would exceed `maximum_bytes`.
    """
    if codec is Codec.NONE:
        return content
    if is_one_step and len(content) > COMPRESSED_AT_ONCE_BYTES:
        raise TooLargeForOneStepError
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(content), maximum_bytes, is_one_step=is_one_step)
    return _decompress_stream(codec, content, maximum_bytes, _ONE_STEP_MEMORY if is_one_step else None)


def _decompress_into(codec: Codec, content: Buffer, memory: memoryview) -> int:
    """Decompress into `memory`; return the written bytes. Raises cramjam.DecompressionError."""
    match codec:
        case Codec.GZIP:
            return cramjam.gzip.decompress_into(content, memory)
        case Codec.LZ4:
            return cramjam.lz4.decompress_into(content, memory)
        case _:
            return cramjam.zstd.decompress_into(content, memory)


def _decompress_stream(codec: Codec, content: Buffer, maximum_bytes: int, only: memoryview | None) -> memoryview:
    """Decompress into `only`, else a buffer of a guessed size, and if that fails into one of the greatest size allowed.

    The three formats need not contain the output size, or the right one; and the library reports a buffer that is too
    small in the same way as corrupt content. The greatest buffer is mapped memory, which takes only the pages that are
    written, so content that expands a lot, or is corrupt, costs one more try.
    Raises TooLargeForOneStepError if `only` is too small.
    """
    guess = only
    if guess is None:
        guess = memoryview(bytearray(max(_LEAST_GUESS_BYTES, len(content) * _GUESSED_RATIO)))
    guess = guess[:maximum_bytes]
    try:
        return guess[: _decompress_into(codec, content, guess)]
    except cramjam.DecompressionError as error:
        # Not the error itself: it refers to this frame, and so keeps the memory until garbage is collected.
        reason = str(error)
    if only is not None:
        if len(guess) < maximum_bytes and len(content) * _GREATEST_RATIOS.get(codec, sys.maxsize) > len(guess):
            raise TooLargeForOneStepError
    elif len(guess) < maximum_bytes:
        del guess
        pages = mmap(-1, maximum_bytes)
        greatest = memoryview(pages)
        try:
            return greatest[: _decompress_into(codec, content, greatest)]
        except cramjam.DecompressionError as error:
            reason = str(error)
        # The error below refers to this frame, too. So the pages are freed, even if a caller keeps the error for long.
        greatest.release()
        pages.close()
    raise DecodeError(f"{codec.name.lower()} content is corrupt or larger than {maximum_bytes} bytes: {reason}")


def _compress_xerial(content: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    with memoryview(content) as view:
        for position in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK_BYTES]))
            out += _BLOCK_LENGTH.pack(len(block))
            out += block
    return bytes(out)


def _decompress_snappy(content: memoryview, maximum_bytes: int, *, is_one_step: bool) -> bytes:
    if content[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(content, maximum_bytes, 0, is_one_step=is_one_step)
    blocks: list[bytes] = []
    total_bytes = 0
    position = len(_XERIAL_HEADER)
    if len(content) < position:
        raise DecodeError("snappy content ends inside its header", position=len(content))
    while position < len(content):
        if len(content) - position < _BLOCK_LENGTH.size:
            raise DecodeError("snappy content ends inside the length of a block", position=position)
        (length_bytes,) = _BLOCK_LENGTH.unpack_from(content, position)
        position += _BLOCK_LENGTH.size
        if length_bytes > len(content) - position:
            raise DecodeError("snappy content ends inside a block", position=position)
        compressed = content[position : position + length_bytes]
        block = _decompress_snappy_block(compressed, maximum_bytes, total_bytes, is_one_step=is_one_step)
        total_bytes += len(block)
        blocks.append(block)
        position += length_bytes
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, maximum_bytes: int, bytes_before: int, *, is_one_step: bool) -> bytes:
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if bytes_before + size_bytes > maximum_bytes:
            raise DecodeError(f"snappy content is larger than {maximum_bytes} bytes")
        if is_one_step and bytes_before + size_bytes > AT_ONCE_BYTES:
            raise TooLargeForOneStepError
        return bytes(cramjam.snappy.decompress_raw(block, output_len=size_bytes))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy content is corrupt: {error}") from None
