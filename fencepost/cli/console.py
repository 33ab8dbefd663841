"""`fencepost console`: a web console for any cluster that speaks Kafka's protocol."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fencepost.cli.client_security import current_transport
from fencepost.cli.connection import bootstrap_option
from fencepost.cli.schema_options import current_masking, current_registry, masking_option, registry_option

EXIT_NOT_RUN = 2


@click.command()
@bootstrap_option
@click.option(
    "--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Where to serve pages."
)
@click.option(
    "--broker-http",
    metavar="URL",
    help="HTTP listener of a Fencepost broker, for the addresses of clients; several, with commas between them.",
)
@click.option(
    "--broker-http-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the token for it.",
)
@click.option("--read-only", is_flag=True, help="Offer no changes.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="Another host name to answer to, as behind a proxy."
)
@click.option("--https", "is_secure", is_flag=True, help="Browsers come by HTTPS, through a proxy in front.")
@click.option("--audit-log", "audit_path", metavar="FILE", help="Append a line per change; default: standard error.")
@registry_option
@masking_option
def console(
    bootstrap: str,
    listen: str,
    broker_http: str | None,
    broker_http_token_file: Path | None,
    read_only: bool,
    names: tuple[str, ...],
    is_secure: bool,
    audit_path: str | None,
) -> None:
    """Show a cluster in a web browser.

    Works with Fencepost and Apache Kafka. If the cluster needs a log-in, each person logs in as a user of the cluster,
    and has that user's rights. Names and passwords among the properties of the client do not count.
    """
    try:
        from fencepost.console.options import ConsoleOptions, OptionError, parse_address
        from fencepost.console.program import serve
    except ModuleNotFoundError as error:
        library = (error.name or "fencepost").partition(".")[0]
        if library == "fencepost":
            raise
        click.echo(f"the console needs {library}, which is not installed: pip install 'fencepost[console]'", err=True)
        sys.exit(EXIT_NOT_RUN)
    try:
        host, port = parse_address(listen)
        transport = current_transport()
        token = broker_http_token_file.read_text(encoding="utf-8").strip() if broker_http_token_file else None
        options = ConsoleOptions(
            bootstrap=tuple(parse_address(address) for address in bootstrap.split(",")),
            listen_host=host,
            listen_port=port,
            tls=transport.tls,
            needs_log_in=transport.protocol.startswith("SASL") or None,
            mechanism=transport.mechanism,
            broker_http=broker_http,
            broker_http_token=token,
            read_only=read_only,
            names=frozenset(name.lower() for name in names),
            is_secure=is_secure,
            audit_path=audit_path,
            registry=current_registry(),
            masking=current_masking(),
        )
        serve(options)
    except (OptionError, OSError) as error:
        raise click.ClickException(str(error)) from None
