"""`fencepost cluster`: the brokers of a cluster, how clients reach them, their disks and features."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from fencepost.broker.cli.connection import admin_client, bootstrap_option, json_option
from fencepost.broker.cli.console_client import ask_cluster
from fencepost.broker.cli.output import print_rows

if TYPE_CHECKING:
    from fencepost.console.kafka.cluster import Cluster


@click.group()
def cluster() -> None:
    """Show the brokers of a cluster."""


@cluster.command()
@bootstrap_option
@json_option
def info(bootstrap: str, as_json: bool) -> None:
    """Show its brokers with their addresses and disks, features.

    A disk is what a broker says of a log directory: the bytes of its logs, and of the volume that it is on.
    """
    with admin_client(bootstrap) as admin:
        described = admin.describe_cluster()
        features = admin.describe_features()
    disks = ask_cluster(bootstrap, _disks)
    feature_rows = [
        {
            "feature": name,
            "level": levels["finalized"][1] if "finalized" in levels else None,
            "supported": "{} to {}".format(*levels["supported"]) if "supported" in levels else None,
        }
        for name, levels in sorted(features.items())
    ]
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
        document = {"cluster_id": described["cluster_id"], "brokers": brokers, "disks": disks, "features": feature_rows}
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"cluster {described['cluster_id']}")
    print_rows(["broker", "address", "rack", "is_controller"], brokers, as_json=False)
    click.echo()
    columns = ["broker", "directory", "log_bytes", "volume_bytes", "free_bytes", "error"]
    if not any(disk["error"] for disk in disks):
        columns.remove("error")
    print_rows(columns, disks, as_json=False, empty="no log directories that this user may see")
    click.echo()
    print_rows(["feature", "level", "supported"], feature_rows, as_json=False, empty="no features")


async def _disks(cluster: Cluster) -> list[dict[str, Any]]:
    """A row for each log directory of each broker, or one with the error."""
    from fencepost.console.kafka.errors import ClusterError, error_name
    from fencepost.protocol.messages.log_dirs import DescribeLogDirsRequest

    rows: list[dict[str, Any]] = []
    for node_id, reply in (await cluster.send_to_all(DescribeLogDirsRequest(topics=None))).items():
        if isinstance(reply, ClusterError):
            rows.append({"broker": node_id, "directory": None, "error": str(reply)})
            continue
        rows += [
            {
                "broker": node_id,
                "directory": one.log_dir,
                "log_bytes": sum(place.partition_size for topic in one.topics for place in topic.partitions),
                "volume_bytes": one.total_bytes if one.total_bytes >= 0 else None,
                "free_bytes": one.usable_bytes if one.usable_bytes >= 0 else None,
                "error": error_name(one.error_code) if one.error_code else None,
            }
            for one in reply.results
        ]
    return rows
