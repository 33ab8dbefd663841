"""`fencepost test-broker`: brokers for tests in any language, with a control API over HTTP."""

from __future__ import annotations

import sys

import click

EXIT_NOT_RUN = 2


@click.command("test-broker")
@click.option(
    "--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port of the API; 0: a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the API and the brokers: loopback.")
@click.option(
    "--published-ports",
    metavar="FIRST-LAST",
    help="In a container: ports of the brokers, published under the same numbers. API and brokers then listen on all "
    "addresses, and clients are sent to localhost.",
)
@click.option("--json", "as_json", is_flag=True, help="Say as JSON when it is ready: url, pid, version.")
@click.option("--until-stdin-closes", is_flag=True, help="End with standard input, and so with the test runner.")
def test_broker(port: int, host: str, published_ports: str | None, as_json: bool, until_stdin_closes: bool) -> None:
    """Give each test a Kafka broker of its own, in any language.

    Start it once. A test creates a broker over HTTP in milliseconds, sets faults, turns its clock, and closes it.
    docs/testing-other-languages.md has the operations, /openapi.json describes them. It prints its address when it is
    ready, and ends with SIGTERM or Ctrl-C. Nothing is kept: it is no broker for data.
    """
    try:
        from fencepost.testing.http.hosts import is_loopback
        from fencepost.testing.http.ports import Ports
        from fencepost.testing.http.program import AddressError, serve
    except ModuleNotFoundError as error:
        library = (error.name or "fencepost").partition(".")[0]
        if library == "fencepost":
            raise
        click.echo(
            f"test-broker needs {library}, which is not installed: pip install 'fencepost[test-broker]'", err=True
        )
        sys.exit(EXIT_NOT_RUN)
    if not is_loopback(host):
        raise click.UsageError(
            f"--host {host} can be reached from other machines, and everyone there could drive the brokers: give "
            "127.0.0.1 or ::1"
        )
    try:
        ports = Ports.parse(published_ports) if published_ports else None
    except ValueError as error:
        raise click.UsageError(f"--published-ports: {error}") from None
    try:
        serve(host, port, as_json=as_json, until_stdin_closes=until_stdin_closes, published=ports)
    except AddressError as error:
        raise click.ClickException(str(error)) from None
