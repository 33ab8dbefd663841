"""`fencepost cluster`: the brokers of a cluster, their addresses, disks, features and led partitions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.cli import cluster_leaders, cluster_storage
from fencepost.cli.completion import topic_names
from fencepost.cli.connection import admin_client, bootstrap_option, json_option
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.log import broker_settings, config_option
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.restored_offsets import skip_offsets_option

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster


Command = TypeVar("Command", bound=Callable[..., Any])
ANY = "any"


def wait_options(command: Command) -> Command:
    """Add `--wait` and `--timeout`."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            default=60.0,
            show_default=True,
            help="How long --wait waits before the command fails; what it has begun goes on.",
        ),
        click.option("--wait", "waits", is_flag=True, help="Return when all has moved."),
    ):
        command = option(command)
    return command


@click.group()
def cluster() -> None:
    """Show the brokers of a cluster and who leads, move leaders."""


@cluster.command()
@bootstrap_option
@json_option
def info(bootstrap: str, as_json: bool) -> None:
    """Show its brokers with their addresses and disks, features.

    Of each log directory, a broker reports the bytes of its logs, and the size and free bytes of its volume.
    """
    with admin_client(bootstrap) as admin:
        described = admin.describe_cluster()
        features = admin.describe_features()
    gone = {broker["broker_id"] for broker in described["brokers"] if broker.get("is_fenced")}
    # Replies name a node for some time after it is gone.
    disks = [disk for disk in ask_cluster(bootstrap, _disks) if disk["broker"] not in gone]
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
            "state": cluster_leaders.GONE if broker["broker_id"] in gone else cluster_leaders.ALIVE,
            "address": None if broker["broker_id"] in gone else cluster_leaders.address(broker["host"], broker["port"]),
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
    print_rows(["broker", "state", "address", "rack", "is_controller"], brokers, as_json=False)
    click.echo()
    columns = ["broker", "directory", "log_bytes", "volume_bytes", "free_bytes", "error"]
    if not any(disk["error"] for disk in disks):
        columns.remove("error")
    print_rows(columns, disks, as_json=False, empty="no log directories that this user may see")
    click.echo()
    print_rows(["feature", "level", "supported"], feature_rows, as_json=False, empty="no features")


@cluster.command()
@bootstrap_option
@json_option
def nodes(bootstrap: str, as_json: bool) -> None:
    """Show its nodes, their states and their partitions.

    A node is alive, leaving (it hands over its partitions, and takes none) or gone. The partitions are those that
    this user may see.
    """
    columns = ["node", "state", "since", "listeners", "leads", "of_which_internal"]
    print_rows(columns, cluster_leaders.nodes_of(bootstrap), as_json=as_json)


@cluster.command()
@bootstrap_option
@json_option
@click.argument("topic", required=False, shell_complete=topic_names)
@click.option("--node", "node_id", type=click.IntRange(0), metavar="NODE", help="Only those that this node leads.")
def partitions(bootstrap: str, as_json: bool, topic: str | None, node_id: int | None) -> None:
    """Show who leads its partitions, or those of TOPIC.

    Chosen is the node that `cluster move` has named; without one the cluster chooses.
    """
    rows = cluster_leaders.partitions_of(bootstrap, topic, node_id)
    columns = ["topic", "partition", "leader", "chosen", *(["next_leader"] if as_json else []), "epoch", "state"]
    print_rows(columns, rows, as_json=as_json, empty="no partitions that this user may see, or none of that node")


@cluster.command()
@bootstrap_option
@json_option
@click.argument("topic", shell_complete=topic_names)
@click.argument("partition", type=click.IntRange(0))
@click.option("--to", "target", metavar="NODE", required=True, help="The node that should lead it; any: no matter.")
@wait_options
def move(bootstrap: str, as_json: bool, topic: str, partition: int, target: str, waits: bool, timeout_s: float) -> None:
    """Have another node lead a partition, from now on.

    The choice holds until another one is made. While the node is gone or leaves, another leads. `--to any` gives the
    choice back to the cluster. Clients go on after one retry.
    """
    if target != ANY and not (target.isascii() and target.isdecimal()):
        raise click.BadParameter(f"{target!r} is no node id; `fencepost cluster nodes` shows them", param_hint="--to")
    node_id = None if target == ANY else int(target)
    wait_s = timeout_s if waits else None
    words = cluster_leaders.move(bootstrap, topic, partition, node_id, wait_s=wait_s)
    print_done(Done(words, {"topic": topic, "partition": partition, "chosen": node_id}), as_json=as_json)


@cluster.command()
@bootstrap_option
@json_option
@click.argument("node_id", metavar="NODE", type=click.IntRange(0))
@click.option("--resume", is_flag=True, help="Have it take partitions again.")
@wait_options
def drain(bootstrap: str, as_json: bool, node_id: int, resume: bool, waits: bool, timeout_s: float) -> None:
    """Have a node hand over all that it leads, or end that.

    It is drained until it is resumed, also when it starts again. If no other node is there, it leads all the same.
    """
    wait_s = timeout_s if waits else None
    words = cluster_leaders.drain(bootstrap, node_id, is_over=resume, wait_s=wait_s)
    print_done(Done(words, {"node": node_id, "drained": not resume}), as_json=as_json)


@cluster.command()
@cluster_storage.stores_options
@click.option("--deep", "is_deep", is_flag=True, help="Read all objects, too, and compare their bytes.")
@click.option(
    "--rate",
    "bytes_per_s",
    type=click.IntRange(1),
    metavar="BYTES",
    help="The most that --deep reads in a second; without it, as fast as the objects come.",
)
@json_option
def check(cluster_url: str, objects_url: str, is_deep: bool, bytes_per_s: int | None, as_json: bool) -> None:
    """Check that all acknowledged records can be read.

    It is for a cluster of machines: it compares the rows in PostgreSQL with each other and with the objects: that each
    is there, with its size. With --deep it reads all their bytes and compares checksums, which downloads
    the whole bucket. Nothing is changed, and brokers may run or not.
    """
    if bytes_per_s is not None and not is_deep:
        raise click.UsageError("--rate goes with --deep: a plain check reads no objects")
    cluster_storage.check(
        cluster_url, objects_url, is_deep=is_deep, bytes_per_s=bytes_per_s or math.inf, as_json=as_json
    )


@cluster.command("import")
@cluster_storage.stores_options
@config_option
@json_option
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
def import_(cluster_url: str, objects_url: str, properties_path: str | None, as_json: bool, directory: str) -> None:
    """Begin a cluster of machines with a broker's data directory.

    No broker may run on the directory, of one process or of several, and PostgreSQL must have no tables in the schema.
    All goes into the cluster: topics with their ids and records, groups, transactions, users, rights and settings.
    Brokers refuse to start until it is complete; if it is interrupted, the same command continues.
    """
    settings, path = broker_settings(directory, properties_path)
    cluster_storage.import_directory(cluster_url, objects_url, path, settings, as_json=as_json)


@cluster.command()
@cluster_storage.stores_options
@json_option
@click.option("--all", "is_all", is_flag=True, help="All topics, groups, transactions, users, rights and settings.")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@click.argument("directory", metavar="DIRECTORY")
def export(
    cluster_url: str, objects_url: str, as_json: bool, is_all: bool, topics: tuple[str, ...], directory: str
) -> None:
    """Write a cluster, or topics, into a data directory.

    It is for a cluster of machines. The directory must be empty or missing. It holds all as of one moment, so to move
    with --all, stop the brokers first; `fencepost serve --data-dir` opens it, and Kafka's tools read its files.
    Of single topics, a transaction that was open stays open there: `fencepost transactions abort-hanging` ends it.
    """
    if is_all == bool(topics):
        raise click.UsageError("name the topics, or say --all")
    names = None if is_all else list(dict.fromkeys(topics))
    cluster_storage.export(cluster_url, objects_url, names, directory, as_json=as_json)


async def _disks(cluster: Cluster) -> list[dict[str, Any]]:
    """A row for each log directory of each broker, or one with the error."""
    from fencepost.client.errors import ClusterError, error_name
    from fencepost.protocol.messages.log_dirs import DescribeLogDirsRequest

    rows: list[dict[str, Any]] = []
    replies = await cluster.send_to_all(DescribeLogDirsRequest(topics=None))
    for node_id, reply in sorted(replies.items()):
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


@cluster.command("try")
@click.option(
    "--nodes", type=click.IntRange(1, 20), metavar="N", default=3, show_default=True, help="How many brokers."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, resolve_path=True),
    metavar="D",
    default="./try",
    show_default=True,
    help="Where all data, logs and process ids (D/node-1.pid) are; a later trial goes on with them.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    metavar="P",
    default=9092,
    show_default=True,
    help="Port of the first broker; the others have the ports after it.",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A setting of all brokers; repeatable.")
@click.option("--restart-node", type=click.IntRange(1), metavar="NODE", help="Start a killed broker of a trial again.")
@click.option(
    "--restart-store",
    type=click.Choice(["postgres", "objects"]),
    help="Start the PostgreSQL or the object store of a trial again.",
)
def try_cluster(
    nodes: int,
    directory: str,
    port: int,
    assignments: tuple[str, ...],
    restart_node: int | None,
    restart_store: str | None,
) -> None:
    """Run a trial cluster on this machine until Ctrl-C.

    It brings its own PostgreSQL and object store (pip install 'fencepost[cluster,postgres]'). When all brokers serve,
    one line says so. Kill one, kill -9 $(cat try/node-2.pid), and watch the others: fencepost cluster nodes.
    The stores can be killed, too (D/postgres.pid, D/objects.pid): brokers wait until they are there again.
    With the variables of D/environment, `cluster check` and `export` find its stores.
    """
    from fencepost.cli import trial_cluster
    from fencepost.soak.trial_services import TrialError

    try:
        if restart_node is not None:
            trial_cluster.restart_node(Path(directory), restart_node)
        elif restart_store is not None:
            trial_cluster.restart_store(Path(directory), restart_store)
        else:
            trial_cluster.run_trial(Path(directory), nodes=nodes, port=port, assignments=assignments)
    except TrialError as error:
        raise click.ClickException(str(error)) from None


@cluster.command()
@cluster_storage.cluster_option
@skip_offsets_option
@json_option
def restored(cluster_url: str, skip_offsets: int | None, as_json: bool) -> None:
    """Make a restored cluster of machines safe to start.

    Run it once after PostgreSQL was restored to an earlier moment, before any broker starts. Clients may hold offsets,
    leader epochs, producer ids and sessions of transactional ids from the time after that moment: all of these begin
    far above them. No broker may be running.
    """
    found = cluster_storage.restored(cluster_url, skip_offsets)
    columns = ["cluster_id", "topics", "partitions", "nodes", "skipped_offsets"]
    print_rows(columns, [found._asdict()], as_json=as_json)
    if not as_json:
        click.echo("the cluster may start")
