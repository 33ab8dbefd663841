"""`fencepost serve` in click: its help, and its errors for wrong options."""

from __future__ import annotations

from typing import Any

import click

# Those of the broker's log, which is not imported for the help.
LOG_LEVELS = ("debug", "info", "warning", "error")

LOADED = ("listeners", "data_dir", "properties_path", "assignments", "log_format", "log_level", "processes")
"""The options that the settings come from, in the order in which `load` takes them."""


@click.command()
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 takes a free one; repeatable.  [default: 127.0.0.1:9092]",
)
@click.option("--data-dir", metavar="DIRECTORY", help="Directory of all data (log.dirs).  [default: ./data]")
@click.option(
    "--config",
    "properties_path",
    metavar="FILE",
    envvar="FENCEPOST_CONFIG",
    show_envvar=True,
    help="A properties file with Kafka's names, such as an existing server.properties.",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; repeatable.")
@click.option("--log-format", type=click.Choice(["human", "json"]), help="Format of the broker's own log.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level of event that is logged.")
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", help="Share the work among N processes, see docs/processes.md."
)
@click.option("--cluster", metavar="URL", help="PostgreSQL of a cluster of machines, see docs/cluster.md.")
@click.option("--objects", metavar="URL", help="Object store of a cluster of machines.")
def serve(**options: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Settings come from --config, then variables FENCEPOST_<NAME> (FENCEPOST_NUM_PARTITIONS=3), then --set, then the
    other options; a later source takes precedence. docs/configuration.md lists all settings.

    When the broker is ready, it prints its address in one line on standard output; its log goes to standard error.
    """
    from fencepost.broker.kernel.lean_imports import import_dataclasses, import_libraries

    import_dataclasses()
    from fencepost.broker.process.serve_settings import load, needs_tls

    loaded = load(**options)
    if loaded.settings.fencepost_processes:
        from fencepost.broker.process.processes import serve_processes

        serve_processes(loaded, tuple(options[name] for name in LOADED))
        return
    import_libraries(with_openssl=needs_tls(loaded.settings))
    from fencepost.broker.process.serve import serve as run_broker

    run_broker(loaded)
