"""Names of the files in a partition's directory: an offset of twenty digits and a suffix.

Source: Kafka's LogFileUtils.
"""

from __future__ import annotations

from fencepost.broker.log.files.segment_checksums import START_SUFFIX

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
NOTED_SUFFIXES = (".log", START_SUFFIX, *INDEX_SUFFIXES)
"""Files of a segment that have a line in the list of checksums."""
LOST_SUFFIX = ".lost-"


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a file: an offset of twenty digits and a suffix, as in `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def lost_path(path: str, position: int) -> str:
    """Return the path of the file that keeps bytes cut off a log file: `….log.lost-1234`."""
    return f"{path}{LOST_SUFFIX}{position}"
