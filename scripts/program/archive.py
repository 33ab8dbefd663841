"""The format of the one-file program: launcher, index, contents, footer. `launcher.c` reads it."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import zstandard

MAGIC: Final = b"FENCEPOST-FILE-1"
FOOTER: Final = struct.Struct("<QQ32s16s")
LEVEL: Final = 19


def pack(launcher: bytes, files: Mapping[str, Path], *, level: int = LEVEL) -> bytes:
    """Return the program. files: by their path inside it; whether one may be executed is kept of its mode."""
    index, contents = io.StringIO(), io.BytesIO()
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    with compressor.stream_writer(contents, closefd=False) as writer:
        for name, path in sorted(files.items()):
            if "\n" in name:
                raise ValueError(f"a line of the index cannot hold the path {name!r}")
            content = path.read_bytes()
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            index.write(f"{mode:o} {len(content)} {name}\n")
            writer.write(content)
    parts = index.getvalue().encode(), contents.getvalue()
    identity = hashlib.sha256(b"".join(parts)).hexdigest()[:32].encode()
    return b"".join((launcher, *parts, FOOTER.pack(*map(len, parts), identity, MAGIC)))


def names_in(program: Path) -> dict[str, int]:
    """The sizes of the files in a program, in bytes, by their paths. Raises ValueError for another file."""
    whole = program.read_bytes()
    index_length, contents_length, _, magic = FOOTER.unpack(whole[-FOOTER.size :])
    if magic != MAGIC:
        raise ValueError(f"{program} is no program of Fencepost")
    end = len(whole) - FOOTER.size - contents_length
    lines = whole[end - index_length : end].decode().splitlines()
    return {name: int(size) for _, size, name in (line.split(" ", 2) for line in lines)}
