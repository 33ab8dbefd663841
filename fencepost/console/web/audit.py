"""The audit log of the console: one line of JSON per change, with its author and its result."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

logger = logging.getLogger("fencepost.console.audit")


def open_audit_log(path: str | None) -> None:
    """Write the audit log to a file, to standard error for None. Raises OSError."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def record(*, user: str | None, address: str, change: str, subject: str, details: str, outcome: str) -> None:
    """Note a change. user: None if no log-in is needed."""
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": "console_change",
        "user": user or "ANONYMOUS",
        "address": address,
        "change": change,
        "subject": subject,
        "details": details,
        "outcome": outcome,
    }
    logger.info(json.dumps(entry, ensure_ascii=True))
