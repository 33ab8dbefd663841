"""Looks for anomalies in a history of client operations; docs/history.md has the format and the anomalies.

    ./.venv/bin/python scripts/check_history.py history.jsonl [--json] [--limit N] [--forbid-write-cycles]

Exit code 0: none; 1: at least one; 2: the file cannot be read or is not a history.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.history.checker import FINDINGS_LIMIT, check_file
from scripts.history.reader import MalformedHistoryError


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks one file, prints the report and returns the exit code."""
    parser = argparse.ArgumentParser(description="Looks for anomalies in a history of client operations.")
    parser.add_argument("history", type=Path, help="the history: JSON lines as in docs/history.md")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--limit",
        type=int,
        default=FINDINGS_LIMIT,
        metavar="N",
        help="show so many anomalies of each kind (default: %(default)s)",
    )
    parser.add_argument(
        "--forbid-write-cycles",
        action="store_true",
        help="report G0 among concurrent transactions, too, which Kafka permits",
    )
    options = parser.parse_args(arguments)
    # Millions of objects that all stay: looking for garbage among them again and again would double the time.
    gc.disable()
    try:
        report = check_file(
            options.history, forbid_write_cycles=options.forbid_write_cycles, findings_limit=options.limit
        )
    except MalformedHistoryError as error:
        print(f"{options.history}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{options.history}: {error.strerror}", file=sys.stderr)
        return 2
    finally:
        gc.enable()
    print(report.as_json() if options.json else report.text().rstrip("\n"))
    return 0 if report.is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
