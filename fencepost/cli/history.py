"""`fencepost history`: finds anomalies in the operations of clients of any Kafka-protocol system."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click

from fencepost.history.checker import FINDINGS_LIMIT, check_file
from fencepost.history.reader import MalformedHistoryError

EXIT_ANOMALIES = 1
EXIT_UNREADABLE = 2


@click.group()
def history() -> None:
    """Check histories of client operations.

    A history is a file of JSON lines; docs/history.md describes it.
    """


@history.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=FINDINGS_LIMIT,
    show_default=True,
    help="Show at most this many anomalies of each kind.",
)
@click.option(
    "--forbid-write-cycles", is_flag=True, help="Also report G0 among concurrent transactions, which Kafka permits."
)
def check(path: Path, is_json: bool, limit: int, forbid_write_cycles: bool) -> None:
    """Look for lost, duplicate, dirty and torn records.

    The exit code is 0 if there are no anomalies, 1 if there are, and 2 if the file cannot be read or is not a history.
    """
    # Millions of objects that all stay: garbage collections would double the time.
    gc.disable()
    try:
        report = check_file(path, forbid_write_cycles=forbid_write_cycles, findings_limit=limit)
    except MalformedHistoryError as error:
        _fail(f"{path}: {error}")
    except OSError as error:
        _fail(f"{path}: {error.strerror}")
    finally:
        gc.enable()
    click.echo(report.as_json() if is_json else report.text().rstrip("\n"))
    sys.exit(0 if report.is_valid else EXIT_ANOMALIES)


def _fail(message: str) -> None:
    click.echo(message, err=True)
    sys.exit(EXIT_UNREADABLE)
