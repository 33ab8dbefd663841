"""`fencepost serve` as click has it: for its help, and for options that are wrong."""

from __future__ import annotations

from typing import Any

import click

from fencepost.broker.cli.serve import serve as run_broker
from fencepost.broker.kernel.logging import LEVELS


@click.command()
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one; may be given again.  [default: 127.0.0.1:9092]",
)
@click.option("--data-dir", metavar="DIRECTORY", help="Where everything is kept (log.dirs).  [default: ./data]")
@click.option(
    "--config",
    "properties_path",
    metavar="FILE",
    envvar="FENCEPOST_CONFIG",
    show_envvar=True,
    help="A properties file with Kafka's names, such as an existing server.properties.",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; may be given again.")
@click.option("--log-format", type=click.Choice(["human", "json"]), help="How the broker's own log is written.")
@click.option("--log-level", type=click.Choice(list(LEVELS)), help="The least important events that are logged.")
def serve(**options: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Settings come from --config, then variables FENCEPOST_<NAME> (FENCEPOST_NUM_PARTITIONS=3), then --set, then the
    other options; the later is the stronger. docs/configuration.md lists them.

    When clients are served, one line on standard output says where; the broker's log goes to standard error.
    """
    run_broker(**options)
