"""Data directories that take long to make: made once, kept between runs, copied for every round."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

FORMAT = 1
"""To be raised when a preparation writes something else under the same sizes."""
LONGEST_AGE_S = 7 * 86_400
"""Transactions and producers in it would run out of time in the end, whatever the settings."""


def prepared(cache: Path, name: str, sizes: Mapping[str, int], prepare: Callable[[Path], None]) -> Path:
    """The directory that `prepare` fills, from the cache if it was made before with the same sizes.

    `prepare` gets an empty directory; it may leave what it likes beside the broker's data.
    """
    described = "-".join(f"{key}={value}" for key, value in sorted(sizes.items()))
    digest = hashlib.sha256(f"{FORMAT} {described}".encode()).hexdigest()[:12]
    kept = cache / f"{name}-{digest}"
    if kept.exists() and time.time() - kept.stat().st_mtime > LONGEST_AGE_S:
        shutil.rmtree(kept)
    if not kept.exists():
        unfinished = kept.with_name(f"{kept.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        prepare(unfinished)
        unfinished.rename(kept)
    return kept


def copy(source: Path, target: Path, *, in_page_cache: bool = True) -> Path:
    """Copy a directory, sharing blocks where the file system can, and have it on the disk before anything is measured.

    in_page_cache: whether its files are in memory afterwards. The kernel is asked to drop them otherwise, which it does
        for clean pages without privileges; only its caches of names and inodes stay warm.
    """
    subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)], check=True)
    os.sync()
    for path in sorted(target.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                if in_page_cache:
                    while file.read(1 << 20):
                        pass
                else:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return target
