"""The broker's own log: where it cannot be written, the broker goes on."""

from __future__ import annotations

import errno
import io

import structlog

from broker.logging import configure_logging


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    try:
        configure_logging(log_format="json", level="info", stream=FullDisk())
        structlog.get_logger("test").error("partition_went_offline", reason="No space left on device")
    finally:
        structlog.reset_defaults()
