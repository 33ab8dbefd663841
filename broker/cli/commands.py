"""The `fencepost` command in click. A subcommand is imported when it is used, so that `serve` starts without client
libraries."""

from __future__ import annotations

import importlib

import click

# Each is a click command of this name in the module of broker.cli with the same name; for `serve`, which a broker runs
# without click, see `broker.main`.
COMMANDS = ("serve", "ping", "topics", "produce", "consume", "groups", "transactions", "log", "history", "soak")
_MODULES = {"serve": "serve_command"}


class LazyGroup(click.Group):
    """A group that imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fencepost.broker.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            nearest = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost", prog_name="fencepost")
def fencepost() -> None:
    """A broker that speaks the Kafka wire protocol, and commands to try it out."""
