"""`fencepost ping`: whether a broker serves, as an exit code."""

from __future__ import annotations

import time

import click

from fencepost.broker.cli.connection import bootstrap_option
from fencepost.broker.cli.probe import NoBrokerError, Reply, probe_any

RETRY_INTERVAL_S = 0.1


@click.command()
@bootstrap_option
@click.option("--wait-seconds", type=click.FloatRange(min=0), default=0.0, help="Keep asking for so long.")
def ping(bootstrap: str, wait_seconds: float) -> None:
    """Say whether a broker serves.

    The exit code is 0 when it does, and 1 when not: for health checks, and for scripts that wait for a broker.
    """
    reply = _ask_until(bootstrap, time.monotonic() + wait_seconds)
    click.echo(f"{bootstrap} serves {reply.apis_count} APIs, answered in {reply.duration_ms:.1f} ms")


def _ask_until(bootstrap: str, deadline_s: float) -> Reply:
    """Raises ClickException when nobody answered before the deadline; asks at least once."""
    while True:
        try:
            return probe_any(bootstrap)
        except NoBrokerError as error:
            if time.monotonic() >= deadline_s:
                raise click.ClickException(f"no broker serves at {bootstrap}: {error}") from None
        time.sleep(RETRY_INTERVAL_S)
