"""`fencepost profile`: keeps the addresses and log-ins of clusters under names."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.client_properties import WrongPropertiesError, properties_in, read_file
from fencepost.cli.client_security import check_known
from fencepost.cli.connection import check_addresses, json_option, parse_settings
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.profile_choice import profile_names, properties_of
from fencepost.cli.profile_file import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    ProfileError,
    Profiles,
    change_profiles,
    check_name,
    is_secret,
    path_of_file,
    read_profiles,
)
from fencepost.cli.questions import yes_option

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
COLUMNS: Final = ("name", "in_use", "bootstrap", "security_protocol", "sasl_mechanism", "command_config")
HIDDEN: Final = "(hidden)"


@click.group()
def profile() -> None:
    """Keep addresses and log-ins of clusters under names.

    `--profile NAME` uses one for a command, FENCEPOST_PROFILE for a shell, `fencepost profile use NAME` from now on.
    The source nearest to the command counts: options; then --profile; then FENCEPOST_BOOTSTRAP and
    FENCEPOST_COMMAND_CONFIG; then FENCEPOST_PROFILE; then the profile in use. A profile that the line does not name is
    left aside if another address is given. `fencepost serve` reads no profile.

    The file is fencepost/profiles.toml in XDG_CONFIG_HOME, or in ~/.config: for its owner alone, as passwords may be in
    it. None is ever shown.
    """


def _of_a_profile(command: Command) -> Command:
    """Add the options for the properties of a profile."""
    for option in (
        click.option(
            "-X",
            "pairs",
            metavar="NAME=VALUE",
            multiple=True,
            help="One property of the client; repeatable. A password belongs into a file: ${file:/path} names it.",
        ),
        click.option(
            "--from",
            "source",
            metavar="FILE",
            help="Copy the properties of a file, such as one of Kafka's tools; - for standard input.",
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(dir_okay=False, resolve_path=True),
            help="Name a file of properties that is read each time the profile is used.",
        ),
        click.option("-b", "--bootstrap", "--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="Its brokers."),
    ):
        command = option(command)
    return command


@profile.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Show the profiles, and which is in use."""
    profiles = _tried(read_profiles)
    rows = [_row(name, profiles) for name in sorted(profiles.by_name)]
    shown = [{**row, "in_use": "*" if row["in_use"] else ""} for row in rows]
    print_rows(COLUMNS, rows if as_json else shown, as_json=as_json, empty="no profiles yet")


def _row(name: str, profiles: Profiles) -> dict[str, Any]:
    written = profiles.by_name[name]
    return {
        "name": name,
        "in_use": name == profiles.current,
        "bootstrap": written.get(BOOTSTRAP),
        "security_protocol": written.get("security.protocol"),
        "sasl_mechanism": written.get("sasl.mechanism"),
        "command_config": written.get(COMMAND_CONFIG),
    }


@profile.command()
@json_option
@click.argument("name", required=False, shell_complete=profile_names)
def show(name: str | None, as_json: bool) -> None:
    """Show the properties of a profile, without passwords.

    Without NAME, that of the profile in use.
    """
    profiles = _tried(read_profiles)
    if name is None:
        name = profiles.current
    if name is None:
        raise click.ClickException("no profile is in use; `fencepost profile list` shows which there are")
    chosen = name
    written = _tried(lambda: profiles.properties(chosen))
    rows = [
        {"property": key, "value": HIDDEN if is_secret(key, value) else value} for key, value in sorted(written.items())
    ]
    if as_json:
        found = {row["property"]: row["value"] for row in rows}
        fields = {"name": name, "in_use": name == profiles.current, "properties": found}
        print_done(Done(f"profile {name}", fields), as_json=True)
        return
    print_rows(("property", "value"), rows, as_json=False, empty="it has no properties")


@profile.command()
@json_option
@click.argument("name")
@_of_a_profile
@click.option("--use", "is_used", is_flag=True, help="Use it from now on.")
def create(name: str, as_json: bool, is_used: bool, **options: Any) -> None:
    """Create a profile."""
    given = _given(**options)

    def change(profiles: Profiles) -> tuple[Profiles, None]:
        check_name(name)
        if name in profiles.by_name:
            raise ProfileError(f"there is a profile {name!r} already; `fencepost profile set` changes it")
        if BOOTSTRAP not in given:
            raise ProfileError("name the cluster's brokers with --bootstrap HOST:PORT")
        current = name if is_used else profiles.current
        return Profiles(current, {**profiles.by_name, name: _checked(name, given)}), None

    _tried(lambda: change_profiles(change))
    use_words = (
        ", and in use from now on" if is_used else f"; `fencepost profile use {shlex.quote(name)}` uses it from now on"
    )
    print_done(Done(f"profile {name} created{use_words}", {"name": name, "in_use": is_used}), as_json=as_json)


@profile.command("set")
@json_option
@click.argument("name", shell_complete=profile_names)
@_of_a_profile
@click.option("--unset", multiple=True, metavar="PROPERTY", help="Remove one property; repeatable.")
def set_(name: str, as_json: bool, unset: tuple[str, ...], **options: Any) -> None:
    """Change properties of a profile; the others stay."""
    given = _given(**options)
    if not given and not unset:
        raise click.UsageError("say what to change: --bootstrap, --command-config, --from, -X, or --unset")

    def change(profiles: Profiles) -> tuple[Profiles, bool]:
        written = dict(profiles.properties(name))
        for key in unset:
            if written.pop(key, None) is None:
                raise ProfileError(f"the profile {name!r} has no property {key!r}; it has {', '.join(sorted(written))}")
        changed = _checked(name, {**written, **given})
        if BOOTSTRAP not in changed:
            raise ProfileError(f"a profile needs {BOOTSTRAP}")
        return Profiles(profiles.current, {**profiles.by_name, name: changed}), name == profiles.current

    is_used = _tried(lambda: change_profiles(change))
    print_done(Done(f"profile {name} changed", {"name": name, "in_use": is_used}), as_json=as_json)


@profile.command()
@json_option
@click.argument("name", required=False, shell_complete=profile_names)
@click.option("--none", "is_none", is_flag=True, help="Use no profile.")
def use(name: str | None, is_none: bool, as_json: bool) -> None:
    """Use a profile from now on, in all shells."""
    if (name is None) != is_none:
        raise click.UsageError("name one profile, or give --none")

    def change(profiles: Profiles) -> tuple[Profiles, str | None]:
        return Profiles(name, profiles.by_name), None if name is None else profiles.properties(name).get(BOOTSTRAP)

    address = _tried(lambda: change_profiles(change))
    words = "no profile is in use" if name is None else f"profile {name} is in use: {address}"
    print_done(Done(words, {"name": name, "bootstrap": address}), as_json=as_json)


@profile.command()
@json_option
@click.argument("name", shell_complete=profile_names)
@click.argument("new_name")
def rename(name: str, new_name: str, as_json: bool) -> None:
    """Give a profile another name."""

    def change(profiles: Profiles) -> tuple[Profiles, bool]:
        written = profiles.properties(name)
        check_name(new_name)
        if new_name in profiles.by_name:
            raise ProfileError(f"there is a profile {new_name!r} already")
        by_name = {key: value for key, value in profiles.by_name.items() if key != name}
        current = new_name if profiles.current == name else profiles.current
        return Profiles(current, {**by_name, new_name: written}), current == new_name

    is_used = _tried(lambda: change_profiles(change))
    fields = {"name": new_name, "old_name": name, "in_use": is_used}
    print_done(Done(f"profile {name} is now {new_name}", fields), as_json=as_json)


@profile.command()
@json_option
@click.argument("name", shell_complete=profile_names)
@yes_option("This deletes the profile with its log-in. Continue?")
def delete(name: str, as_json: bool) -> None:
    """Delete a profile; if it was in use, none is from then on."""

    def change(profiles: Profiles) -> tuple[Profiles, bool]:
        profiles.properties(name)
        was_used = profiles.current == name
        by_name = {key: value for key, value in profiles.by_name.items() if key != name}
        return Profiles(None if was_used else profiles.current, by_name), was_used

    was_used = _tried(lambda: change_profiles(change))
    words = f"profile {name} deleted" + ("; no profile is in use any more" if was_used else "")
    print_done(Done(words, {"name": name, "was_in_use": was_used}), as_json=as_json)


@profile.command()
@json_option
def path(as_json: bool) -> None:
    """Show where the file of profiles is, or would be."""
    found = _tried(path_of_file)
    print_done(Done(found, {"path": found}), as_json=as_json)


def _given(
    bootstrap: str | None, command_config: str | None, source: str | None, pairs: tuple[str, ...]
) -> dict[str, str]:
    """The properties that the options give; later kinds count more than earlier ones. Raises ClickException."""
    given: dict[str, str] = {}
    try:
        if source is not None:
            read = properties_in(sys.stdin.read(), "standard input") if source == "-" else read_file(source)
            given.update({key: found.value for key, found in read.items()})
        if command_config is not None:
            read_file(command_config)
    except WrongPropertiesError as error:
        raise click.UsageError(str(error)) from None
    if command_config is not None:
        given[COMMAND_CONFIG] = command_config
    given.update(parse_settings(pairs, "-X"))
    if bootstrap is not None:
        given[BOOTSTRAP] = bootstrap
    if BOOTSTRAP in given:
        try:
            check_addresses(given[BOOTSTRAP])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
    return given


def _checked(name: str, written: Mapping[str, str]) -> dict[str, str]:
    """Return the properties. Raises ProfileError for one that seems to protect a connection and is not known."""
    try:
        check_known(properties_of(name, written))
    except WrongPropertiesError as error:
        raise ProfileError(str(error)) from None
    return dict(written)


def _tried(do: Callable[[], T]) -> T:
    try:
        return do()
    except ProfileError as error:
        raise click.ClickException(printable(str(error))) from None
