"""The `fencepost` command in click. A subcommand is imported when it is used, so that `serve` starts without client
libraries."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.broker.process.interrupts import end_silently, raise_again
from fencepost.cli.closed_output import end_quietly, quiet_if_output_is_closed
from fencepost.cli.exit_codes import INTERRUPTED, NOT_DONE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "Run a broker until SIGTERM or Ctrl-C.",
    "ping": "Check whether a broker serves.",
    "apis": "Show the APIs, versions and features that brokers serve.",
    "profile": "Keep addresses and log-ins of clusters under names.",
    "cluster": "Show the brokers of a cluster and who leads, move leaders.",
    "topics": "Show, create, grow, trim and delete topics.",
    "produce": "Write lines of standard input, or of a file, to a topic.",
    "consume": "Print the records of topics.",
    "groups": "Show groups of all kinds and lag, reset offsets.",
    "transactions": "Show transactions and producers, end transactions.",
    "two-phase": "Compare the two sides of commits over a database and topics.",
    "check-back": "Ask the sources of transactions in doubt how they end.",
    "spark": "Finish the decided batches of Spark's sinks.",
    "acls": "Add, list and remove access control lists (ACLs).",
    "users": "Add, list and remove users with passwords (SCRAM, PLAIN).",
    "tokens": "Create, list, renew and end delegation tokens.",
    "console": "Show a cluster in a web browser.",
    "quotas": "Set, list and remove quotas of users and client ids.",
    "configs": "Show or change settings of brokers, groups and loggers.",
    "bench": "Measure throughput and latency with one client.",
    "log": "Check, show and repair a stopped broker's data directory.",
    "history": "Check histories of client operations.",
    "soak": "Transact while processes are killed and frozen.",
    "test-broker": "Give each test a Kafka broker of its own, in any language.",
    "version": "Show the version.",
}
"""The commands, each with the first line of its help: to show that, no command is imported.

Each is a click command of this name in the module of fencepost.cli with the same name; for `serve`, which a broker runs
without click, see `fencepost.cli.main`.
"""
BYTES_TAKEN: Final = frozenset({"serve", "produce", "log", "history", "soak"})
"""Those whose arguments may be bytes that are no text: of records, and of paths of files that are not there yet."""
_MODULES = {
    "serve": "serve_command",
    "check-back": "check_back",
    "two-phase": "two_phase",
    "test-broker": "controlled_broker",
}


class LazyGroup(click.Group):
    """A group that imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fencepost.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        raise_again()  # imports from here on can be interrupted without harm
        with quiet_if_output_is_closed():
            return super().invoke(ctx)

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        with quiet_if_output_is_closed():  # as the help is printed here
            return super().make_context(*arguments, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            nearest = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        if name not in BYTES_TAKEN:
            refuse_bytes(args[1:], ctx)
        return super().resolve_command(ctx, args)


def refuse_bytes(arguments: Sequence[str], ctx: click.Context | None = None) -> None:
    """Raise UsageError for an argument that is not UTF-8, unless it names a file: no request of Kafka can carry it."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if not os.path.lexists(argument):
                raise click.UsageError(f"{os.fsencode(argument)!r} is not UTF-8", ctx) from None


def run() -> None:
    """Run the command that the process was called with, and end the process; after a Ctrl-C, without a word."""
    end_silently()
    if sys.stdin is None:
        # It was closed (`<&-`): the commands that read it find an empty one.
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    try:
        # A command's return value is no exit code; one from click itself is.
        code = fencepost.main(prog_name="fencepost", standalone_mode=False)
        _flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        click.echo("Aborted!", err=True)
        sys.exit(NOT_DONE)
    sys.exit(code if isinstance(code, int) else 0)


def _flush() -> None:
    """Write the rest of the output. Python would do it at its end, and print an exception if nobody reads it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        end_quietly()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost", prog_name="fencepost")
def fencepost() -> None:
    """A broker that speaks the Kafka wire protocol, and commands to try it out."""
