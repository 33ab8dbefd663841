"""`--profile NAME`: which profile a command uses, if any.

The source nearest to the command counts: the options of the line, with `--profile` the last of them; then variables
for a single thing (FENCEPOST_BOOTSTRAP, FENCEPOST_COMMAND_CONFIG); then FENCEPOST_PROFILE; then the profile in use.
A profile that the line does not name is left aside as a whole if another address is given: its password was meant for
its own cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from fencepost.cli.client_properties import Properties, Property, read_file
from fencepost.cli.profile_file import BOOTSTRAP, COMMAND_CONFIG, ProfileError, read_profiles

Command = TypeVar("Command", bound=Callable[..., Any])
_NAMED_KEY: Final = "fencepost.profile-named"
_USED_KEY: Final = "fencepost.profile-used"


class UsedProfile(NamedTuple):
    """The profile of the running command. is_its_address: the command uses its address, rather than another."""

    name: str
    written: Mapping[str, str]
    is_its_address: bool

    @property
    def bootstrap(self) -> str:
        """Raises UsageError."""
        found = self.written.get(BOOTSTRAP)
        if found is None:
            raise click.UsageError(
                f"the profile {self.name!r} has no {BOOTSTRAP}: `fencepost profile set {self.name} --bootstrap "
                "HOST:PORT` sets it"
            )
        return found

    def properties(self) -> Properties:
        """Its properties, with those of its file below them. Raises WrongPropertiesError."""
        return properties_of(self.name, self.written)


def properties_of(name: str, written: Mapping[str, str]) -> Properties:
    """The properties of a profile, with those of the file that it names below them. Raises WrongPropertiesError."""
    path = written.get(COMMAND_CONFIG)
    below = {} if path is None else read_file(path)
    place = f"profile {name!r}"
    return {**below, **{key: Property(value, place) for key, value in written.items() if key != COMMAND_CONFIG}}


def profile_option(command: Command) -> Command:
    """Add `--profile NAME`, also read from FENCEPOST_PROFILE."""
    return click.option(
        "--profile",
        "profile_name",
        metavar="NAME",
        envvar="FENCEPOST_PROFILE",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_take_name,
        shell_complete=profile_names,
        help="The cluster's address and properties, as `fencepost profile` keeps them.",
    )(command)


def _take_name(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    source = context.get_parameter_source(parameter.name or "")
    context.meta[_NAMED_KEY] = None if name is None else (name, source is ParameterSource.COMMANDLINE)


def is_named(context: click.Context) -> bool:
    """Whether the line names a profile."""
    named = context.meta.get(_NAMED_KEY)
    return named is not None and bool(named[1])


def choose_profile(context: click.Context, address: ParameterSource | None) -> UsedProfile | None:
    """Choose the profile, and return it if the address is its own. address: the source of the value of
    `--bootstrap`.

    Raises UsageError for an unknown name, and for a file that cannot be used.
    """
    on_line = is_named(context)
    has_address = address is ParameterSource.COMMANDLINE or (address is ParameterSource.ENVIRONMENT and not on_line)
    context.meta[_USED_KEY] = None
    if has_address and not on_line:
        return None
    named = context.meta.get(_NAMED_KEY)
    try:
        profiles = read_profiles()
        name = profiles.current if named is None else named[0]
        if name is None:
            return None
        used = UsedProfile(name, profiles.properties(name), is_its_address=not has_address)
    except ProfileError as error:
        raise click.UsageError(str(error)) from None
    context.meta[_USED_KEY] = used
    return used if used.is_its_address else None


def profile_in_use() -> UsedProfile | None:
    """The profile of the running command; None for none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_USED_KEY)


def profile_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of profiles that begin so, for a shell; none if the file cannot be used."""
    try:
        return sorted(name for name in read_profiles().by_name if name.startswith(incomplete))
    except ProfileError:
        return []
