"""`fencepost cluster`: the brokers of a cluster, and how clients reach them."""

from __future__ import annotations

import json

import click

from fencepost.broker.cli.connection import admin_client, bootstrap_option, json_option
from fencepost.broker.cli.output import print_rows


@click.group()
def cluster() -> None:
    """Show the brokers of a cluster."""


@cluster.command()
@bootstrap_option
@json_option
def info(bootstrap: str, as_json: bool) -> None:
    """Show its brokers, and where clients are sent to."""
    with admin_client(bootstrap) as admin:
        described = admin.describe_cluster()
    brokers = [
        {
            "broker": broker["broker_id"],
            "address": f"{broker['host']}:{broker['port']}",
            "rack": broker.get("rack"),
            "is_controller": broker["broker_id"] == described["controller_id"],
        }
        for broker in sorted(described["brokers"], key=lambda broker: int(broker["broker_id"]))
    ]
    if as_json:
        click.echo(json.dumps({"cluster_id": described["cluster_id"], "brokers": brokers}, indent=2))
        return
    click.echo(f"cluster {described['cluster_id']}")
    print_rows(["broker", "address", "rack", "is_controller"], brokers, as_json=False)
