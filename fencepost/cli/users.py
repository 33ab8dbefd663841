"""`fencepost users`: the users that may log in by SCRAM, and those in a file for PLAIN."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fencepost.broker.hosting.scram_credentials import (
    MAXIMUM_ITERATIONS,
    MINIMUM_ITERATIONS,
    Credential,
    Credentials,
    ScramCredentials,
    ScramMechanism,
    credential_of,
)
from fencepost.cli.completion import user_names
from fencepost.cli.connection import bootstrap_option, check_replies, json_option
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.sending import brokers
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from fencepost.broker.security.sasl.users_file import PasswordHash

Command = TypeVar("Command", bound=Callable[..., Any])

SALT_BYTES: Final = 16
DEFAULT_ITERATIONS: Final = 8192
_NAMES: Final = {mechanism.name.replace("_", "-"): mechanism for mechanism in ScramMechanism}
_COLUMNS: Final = ("user", "mechanism", "iterations")

Keys = tuple[str, ScramMechanism]


@click.group()
def users() -> None:
    """Add, list and remove users with passwords (SCRAM, PLAIN)."""


def _place_options(command: Command) -> Command:
    """Add the options that choose where the users are."""
    for decorate in reversed(
        (
            click.option(
                "--data-dir",
                "data_directory",
                metavar="DIRECTORY",
                help="The data directory of a broker that does not run, also before its first start, in place of "
                "--bootstrap.",
            ),
            click.option(
                "--users-file",
                metavar="FILE",
                help="A file for fencepost.plain.users.file, in place of --bootstrap: users of PLAIN.",
            ),
        )
    ):
        command = decorate(command)
    return command


def _mechanism_option(help_text: str) -> Callable[[Command], Command]:
    return click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice(list(_NAMES), case_sensitive=False),
        help=help_text,
    )


@users.command("set")
@click.argument("name", shell_complete=user_names)
@click.option(
    "--password", metavar="TEXT", help="Other users of this machine can see it; if left out, it is asked for."
)
@_mechanism_option("Mechanism that the user may log in by; repeatable; both if not given.")
@click.option(
    "--iterations",
    type=click.IntRange(MINIMUM_ITERATIONS, MAXIMUM_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="Cost of a guess, for somebody who has stolen the stored keys.",
)
@_place_options
@bootstrap_option
@json_option
def set_user(
    name: str,
    password: str | None,
    mechanisms: Sequence[str],
    iterations: int,
    data_directory: str | None,
    users_file: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Add the user NAME, or change its password.

    A broker uses it for the next log-in, without a restart. Connections that are open stay as they are.
    """
    _check_place(data_directory, users_file, mechanisms)
    if not name:
        raise click.UsageError("the name of a user cannot be empty")
    chosen = _chosen(mechanisms)
    password = _password() if password is None else password
    if not password:
        raise click.UsageError("the password cannot be empty")
    if users_file is not None:
        _change_file(users_file, name, password)
        print_done(_set(name, ["PLAIN"]), as_json=as_json)
        return
    salted = {mechanism: _salted(mechanism, password, iterations) for mechanism in chosen}
    if data_directory is not None:
        _change_offline(
            data_directory,
            {
                (name, mechanism): credential_of(mechanism, iterations, salt, salted_password)
                for mechanism, (salt, salted_password) in salted.items()
            },
        )
    else:
        with brokers(bootstrap) as cluster:
            for mechanism, (salt, salted_password) in salted.items():
                upsertion = ScramCredentialUpsertion(name, mechanism, iterations, salt, salted_password)
                check_replies(*cluster.send(AlterUserScramCredentialsRequest([], [upsertion])).results)
    print_done(_set(name, [_shown(mechanism) for mechanism in chosen]), as_json=as_json)


def _set(name: str, mechanisms: list[str]) -> Done:
    return Done(f"{name}: {', '.join(mechanisms)}", {"user": name, "mechanisms": mechanisms})


@users.command("list")
@_place_options
@bootstrap_option
@json_option
def list_users(data_directory: str | None, users_file: str | None, bootstrap: str, as_json: bool) -> None:
    """Show the users, and how they may log in."""
    _check_place(data_directory, users_file, ())
    if users_file is not None:
        rows = [_row(name, "PLAIN", None) for name in sorted(_read_file(users_file))]
    elif data_directory is not None:
        rows = [
            _row(name, _shown(mechanism), credential.iterations)
            for name, credentials in sorted(_read_offline(data_directory).items())
            for mechanism, credential in sorted(credentials.items())
        ]
    else:
        with brokers(bootstrap) as cluster:
            reply = cluster.send(DescribeUserScramCredentialsRequest(None))
        check_replies(reply, *reply.results)
        rows = [
            _row(one.user, _shown(ScramMechanism(info.mechanism)), info.iterations)
            for one in reply.results
            for info in one.credential_infos
        ]
    print_rows(_COLUMNS, rows, as_json=as_json, empty="no users")


@users.command()
@click.argument("name", shell_complete=user_names)
@_mechanism_option("Mechanism that the user may not log in by any more; repeatable; all that it has if not given.")
@_place_options
@bootstrap_option
@json_option
def remove(
    name: str,
    mechanisms: Sequence[str],
    data_directory: str | None,
    users_file: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Remove the user NAME: it cannot log in again. Connections that are open stay as they are."""
    _check_place(data_directory, users_file, mechanisms)
    chosen = _chosen(mechanisms)
    if users_file is not None:
        _change_file(users_file, name, None)
    elif data_directory is not None:
        kept = _read_offline(data_directory).get(name, {})
        removed = [mechanism for mechanism in chosen if mechanism in kept]
        _require(name, removed)
        _change_offline(data_directory, {(name, mechanism): None for mechanism in removed})
    else:
        with brokers(bootstrap) as cluster:
            (found,) = cluster.send(DescribeUserScramCredentialsRequest([_user_name(name)])).results
            kept_here = {info.mechanism for info in found.credential_infos}
            removed = [mechanism for mechanism in chosen if mechanism in kept_here]
            if not removed and not found.error_code:
                _require(name, removed)
            if not removed:
                check_replies(found)
            for mechanism in removed:
                deletion = ScramCredentialDeletion(name, mechanism)
                check_replies(*cluster.send(AlterUserScramCredentialsRequest([deletion], [])).results)
    print_done(Done(f"{name}: removed", {"user": name, "removed": True}), as_json=as_json)


# Options


def _check_place(data_directory: str | None, users_file: str | None, mechanisms: Sequence[str]) -> None:
    if data_directory is not None and users_file is not None:
        raise click.UsageError("--data-dir and --users-file exclude each other")
    if users_file is not None and mechanisms:
        raise click.UsageError("a users file is for PLAIN: leave --mechanism out")


def _chosen(mechanisms: Sequence[str]) -> list[ScramMechanism]:
    return sorted({_NAMES[name.upper()] for name in mechanisms} or _NAMES.values())


def _password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _salted(mechanism: ScramMechanism, password: str, iterations: int) -> tuple[bytes, bytes]:
    """A random salt, and the salted password. Source: RFC 5802, section 3."""
    salt = secrets.token_bytes(SALT_BYTES)
    return salt, hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def _shown(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _row(user: str, mechanism: str, iterations: int | None) -> dict[str, Any]:
    return {"user": user, "mechanism": mechanism, "iterations": iterations}


def _require(name: str, found: Sequence[object]) -> None:
    if not found:
        raise click.ClickException(f"there is no user {name!r}; `fencepost users list` shows which there are")


# A running broker


def _user_name(name: str) -> Any:
    from fencepost.protocol.messages.scram_credentials import UserName

    return UserName(name)


# A data directory


def _change_offline(directory: str, changes: Mapping[Keys, Credential | None]) -> None:
    async def change(credentials: ScramCredentials) -> None:
        await credentials.change(changes)

    _offline(directory, change)


def _read_offline(directory: str) -> Credentials:
    if not os.path.isdir(directory):
        raise click.ClickException(f"there is no directory {directory}")

    async def read(credentials: ScramCredentials) -> Credentials:
        return credentials.all

    return _offline(directory, read)  # type: ignore[no-any-return]


def _offline(directory: str, work: Callable[[ScramCredentials], Any]) -> Any:
    """Do something with the credentials in a data directory, which is made if it is missing."""
    from fencepost.broker.network.server import StartError
    from fencepost.broker.node import make_data_directory, sqlite_store
    from fencepost.broker.storage.descriptors import Descriptors, descriptor_limit
    from fencepost.broker.storage.disk import StorageError
    from fencepost.broker.storage.local_disk import LocalDisk

    async def run() -> Any:
        disk = LocalDisk(Descriptors(descriptor_limit()))
        store = sqlite_store(directory, disk)
        try:
            await store.open()
            credentials = ScramCredentials(store)
            await credentials.open()
            return await work(credentials)
        finally:
            await store.close()
            disk.close()

    try:
        make_data_directory(directory)
        return asyncio.run(run())
    except (StartError, StorageError) as error:
        raise click.ClickException(f"{error}. If a broker runs on this directory, use --bootstrap") from None


# A users file


def _read_file(path: str) -> dict[str, PasswordHash]:
    from fencepost.broker.security.sasl.users_file import UsersFileError, read_users

    try:
        return read_users(path)
    except UsersFileError as error:
        raise click.ClickException(str(error)) from None


def _change_file(path: str, name: str, password: str | None) -> None:
    from fencepost.broker.security.sasl.users_file import hash_password, write_users

    if "\n" in name or "\r" in name or name.startswith("#"):
        raise click.UsageError("in a users file, a name has no line breaks and no # at its beginning")
    kept = _read_file(path) if os.path.exists(path) else {}
    if password is None:
        _require(name, [one for one in kept if one == name])
        del kept[name]
    else:
        kept[name] = hash_password(password)
    try:
        write_users(path, kept)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
