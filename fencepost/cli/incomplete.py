"""Incomplete lists: the known rows are printed, the missing ones are named, and the command fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows


def unserved(bootstrap: str, topic: str) -> list[str]:
    """Missing parts of a list that is made of this topic's state, as sentences. Raises ClickException."""
    from fencepost.console.reading.unserved import unserved as ask

    words = ask_cluster(bootstrap, lambda cluster: ask(cluster, topic))
    return [] if words is None else [words]


def print_or_fail(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    missing: Sequence[str],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Print rows as `print_rows` does. missing: why there may be more of them; then they are no proof of anything, and
    ClickException is raised behind them.
    """
    if not missing:
        print_rows(columns, rows, as_json=as_json, empty=empty)
        return
    if rows or as_json:
        print_rows(columns, rows, as_json=as_json)
    raise click.ClickException(
        f"the list may not be complete: {printable('; '.join(missing))}. `fencepost topics describe` shows the "
        "partitions, and the broker's log why one is offline"
    )
