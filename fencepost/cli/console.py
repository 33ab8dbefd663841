"""`fencepost console`: a web console for any cluster that speaks Kafka's protocol."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from fencepost.cli.client_security import current_transport
from fencepost.cli.connection import bootstrap_option
from fencepost.cli.schema_options import current_masking, current_registry, masking_option, registry_option

if TYPE_CHECKING:
    from fencepost.console.options import ConsoleOptions

EXIT_NOT_RUN: Final = 2
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@bootstrap_option
@click.option(
    "--config",
    type=_FILE,
    metavar="FILE",
    help="Clusters, roles, OpenID Connect and the server, in TOML; other options do not go with it, but --listen.",
)
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
    type=_FILE,
    metavar="FILE",
    help="File with the token for it.",
)
@click.option("--read-only", is_flag=True, help="Offer no changes.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="Another host name to answer to, as behind a proxy."
)
@click.option(
    "--tls-certificate",
    type=_FILE,
    metavar="FILE",
    help="Serve HTTPS with this certificate and those of its issuers, in PEM. It is read again when it changes.",
)
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key in PEM, if the certificate's file has none.")
@click.option("--tls-key-password-file", type=_FILE, metavar="FILE", help="File with the password of an encrypted key.")
@click.option("--no-hsts", is_flag=True, help="Do not tell browsers to come by HTTPS alone from then on.")
@click.option("--https", "is_secure", is_flag=True, help="Browsers come by HTTPS, through a proxy in front.")
@click.option(
    "--idle-minutes",
    type=click.FloatRange(0.1, 10_080),
    default=480,
    show_default=True,
    help="Minutes without use after which a session ends.",
)
@click.option(
    "--session-hours",
    type=click.FloatRange(0.1, 720),
    default=24,
    show_default=True,
    help="Hours after the log-in at which a session ends in any case.",
)
@click.option("--audit-log", "audit_path", metavar="FILE", help="Append a line per change; default: standard error.")
@registry_option
@masking_option
def console(bootstrap: str, **chosen: Any) -> None:
    """Show a cluster in a web browser.

    Works with Fencepost and Apache Kafka. If the cluster needs a log-in, each person logs in as a user of the cluster,
    and has that user's rights. Names and passwords among the properties of the client do not count.
    """
    try:
        from fencepost.console.options import OptionError
        from fencepost.console.program import serve
    except ModuleNotFoundError as error:
        library = (error.name or "fencepost").partition(".")[0]
        if library == "fencepost":
            raise
        click.echo(f"the console needs {library}, which is not installed: pip install 'fencepost[console]'", err=True)
        sys.exit(EXIT_NOT_RUN)
    try:
        serve(_options(bootstrap, chosen) if chosen["config"] is None else _options_of_file(chosen))
    except (OptionError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _options_of_file(chosen: Mapping[str, Any]) -> ConsoleOptions:
    """Raises OptionError."""
    from fencepost.cli.console_file import read_config
    from fencepost.console.options import OptionError, parse_address

    context = click.get_current_context()
    # All parameters: context.params lacks those that go to callbacks, such as --masking.
    known = {one.name: one.opts[0] for one in context.command.params if one.name is not None}
    given = [name for name in known if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    others = [name for name in given if name not in ("config", "listen")]
    if others:
        raise OptionError(f"{known[others[0]]} does not go with --config: write it into {chosen['config']}")
    options = read_config(chosen["config"])
    if "listen" in given:
        host, port = parse_address(chosen["listen"])
        options = replace(options, listen_host=host, listen_port=port)
    return options


def _options(bootstrap: str, chosen: Mapping[str, Any]) -> ConsoleOptions:
    """Raises OptionError, OSError, ClickException."""
    from fencepost.console.options import ConsoleOptions, OptionError, TlsFiles, parse_address

    host, port = parse_address(chosen["listen"])
    transport = current_transport()
    certificate, key = chosen["tls_certificate"], chosen["tls_key"]
    if certificate is None and (key is not None or chosen["tls_key_password_file"] is not None):
        raise OptionError("--tls-key and its password count only with --tls-certificate")
    files = None if certificate is None else TlsFiles(certificate, key, _secret_in(chosen["tls_key_password_file"]))
    return ConsoleOptions(
        bootstrap=tuple(parse_address(address) for address in bootstrap.split(",")),
        listen_host=host,
        listen_port=port,
        tls=transport.tls,
        needs_log_in=transport.protocol.startswith("SASL") or None,
        mechanism=transport.mechanism,
        broker_http=chosen["broker_http"],
        broker_http_token=_secret_in(chosen["broker_http_token_file"]),
        read_only=chosen["read_only"],
        names=frozenset(name.lower() for name in chosen["names"]),
        server_tls=files,
        is_secure=chosen["is_secure"],
        has_hsts=not chosen["no_hsts"],
        audit_path=chosen["audit_path"],
        idle_s=chosen["idle_minutes"] * 60,
        lifetime_s=chosen["session_hours"] * 3600,
        registry=current_registry(),
        masking=current_masking(),
    )


def _secret_in(path: Path | None) -> str | None:
    return None if path is None else path.read_text(encoding="utf-8").strip()
