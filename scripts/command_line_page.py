"""Writes docs/command-line.md: every command with its options, as `--help` shows them.

.venv/bin/python -m scripts.command_line_page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from fencepost.cli.commands import fencepost
from fencepost.cli.other_brokers import other_brokers_section

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
HELP_WIDTH = 100

INTRODUCTION = """\
# Command line

`fencepost serve` is the broker, and all that production needs. The other commands try things out and look into a
running broker, this one or any other that speaks Kafka's protocol. What was asked for goes to standard output, as a
table or, with `--json`, for programs; errors and counts go to standard error. In a checkout, `./scripts/fencepost` runs
them. Generated from the commands by `python -m scripts.command_line_page`; a test keeps it current.
Until Fencepost is on PyPI, the extras below are `pip install '.[cluster,postgres]'` and
`pip install '.[check-back,postgres]'` in a checkout.

`fencepost profile` keeps the addresses and log-ins of clusters under names: `--profile NAME` reaches one of them, and
`fencepost profile use NAME` makes it the one that commands use from now on. The source nearest to the command counts:

| order | address | log-in |
|---|---|---|
| 1 | `--bootstrap` | `--command-config`, with `-X` above it |
| 2 | the profile of `--profile` | the same profile, with `-X` above it |
| 3 | `FENCEPOST_BOOTSTRAP` | `FENCEPOST_COMMAND_CONFIG`, with `-X` above it |
| 4 | the profile of `FENCEPOST_PROFILE`, else the one in use | the same profile, with `-X` above it |
| 5 | `127.0.0.1:9092` | none |

A profile that `--profile` does not name is left aside as a whole if the address comes from elsewhere: its password was
meant for its own cluster. `fencepost serve` reads no profile. No command shows a password of a profile.

A command that cannot be undone asks first. `--yes` or `-y` answers beforehand; without it and without a terminal the
command changes nothing and says so.

Shells complete commands and options of `fencepost`, and the names of topics, groups, transactional ids, users, settings
and profiles: these come from the broker that the command would ask, by its `--bootstrap` or profile, if it answers
within a second. At most 500 are offered, and none with a character that a shell treats specially. For bash, add the
first line to `~/.bashrc`; for zsh, the second to `~/.zshrc`; for fish, run the third once:

```sh
eval "$(_FENCEPOST_COMPLETE=bash_source fencepost)"
eval "$(_FENCEPOST_COMPLETE=zsh_source fencepost)"
_FENCEPOST_COMPLETE=fish_source fencepost > ~/.config/fish/completions/fencepost.fish
```

## Patterns

`--pattern`, and a TOPIC of `consume`, mean all names that match. `*` stands for any number of characters, `?` for
one, and the whole name must match: `orders-*`. A pattern that begins with `^` is a regular expression (Python's),
which must match from the beginning of the name on: `^orders` means `orders-eu`, too, and `^orders$` does not. Quote
patterns, or the shell replaces them by names of files. No pattern means internal topics, nor any that begins with
`__`: name those.

A command that changes what a pattern means shows it first, on standard error, and asks. `--dry-run` only shows it,
`--yes` answers the question, and `--expect N` refuses another number of things than N. A pattern that matches every
name, such as `*`, or `$PREFIX*` in a script whose variable is empty, asks for their number, and `--yes` is not enough
for it.

## Exit codes

[exit-codes.md](exit-codes.md) has the exit codes, [command-line-json.md](command-line-json.md) the fields that `--json`
prints.

"""


def command_line_page() -> str:
    """The whole page."""
    return INTRODUCTION + other_brokers_section() + "\n".join(_sections(fencepost, None, "fencepost"))


def _sections(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(
        command, parent=parent, info_name=name, terminal_width=HELP_WIDTH, **command.context_settings
    )
    level = "##" if parent is None or parent.parent is None else "###"
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for subcommand_name in command.list_commands(context):
            subcommand = command.get_command(context, subcommand_name)
            assert subcommand is not None, subcommand_name
            if not subcommand.hidden:
                yield from _sections(subcommand, context, subcommand_name)


if __name__ == "__main__":
    PAGE.write_text(command_line_page(), encoding="utf-8")
