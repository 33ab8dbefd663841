"""`fencepost ping`: health check that reports whether a broker serves."""

from __future__ import annotations

import json
import time

import click

from fencepost.cli.client_security import current_security
from fencepost.cli.connection import bootstrap_option, json_option
from fencepost.cli.probe import NoBrokerError, NoLoginError, ProbeResult, probe_any

RETRY_INTERVAL_S = 0.1


@click.command()
@bootstrap_option
@json_option
@click.option("--wait-seconds", type=click.FloatRange(min=0), default=0.0, help="Retry for up to this time.")
def ping(bootstrap: str, as_json: bool, wait_seconds: float) -> None:
    """Check whether a broker serves.

    The exit code is 0 if it does, else 1: for health checks, and for scripts that wait for a broker. With
    --command-config it logs in, too; a listener with SASL answers without.
    """
    reply = _probe_until(bootstrap, time.monotonic() + wait_seconds)
    if as_json:
        answer = {"bootstrap": bootstrap, "apis": reply.apis_count, "duration_ms": round(reply.duration_ms, 1)}
        click.echo(json.dumps(answer))
        return
    click.echo(f"{bootstrap} serves {reply.apis_count} APIs, answered in {reply.duration_ms:.1f} ms")


def _probe_until(bootstrap: str, deadline_s: float) -> ProbeResult:
    """Probe at least once, and until the deadline. Raises ClickException if no broker answers."""
    security = current_security()
    while True:
        try:
            return probe_any(bootstrap, security=security)
        except NoLoginError as error:
            raise click.ClickException(f"{bootstrap} does not serve this client: {error}") from None
        except NoBrokerError as error:
            if time.monotonic() >= deadline_s:
                raise click.ClickException(f"no broker serves at {bootstrap}: {error}") from None
        time.sleep(RETRY_INTERVAL_S)
