"""The file of profiles: for each name the properties by which commands reach a cluster, and the name in use.

It is TOML, `fencepost/profiles.toml` in the user's directory of settings. As passwords may be in it, it is made for its
owner alone; one with a password that others can read is refused.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from fencepost.broker.kernel.printable import printable

T = TypeVar("T")

BOOTSTRAP: Final = "bootstrap.servers"
COMMAND_CONFIG: Final = "command.config"
"""The path of a file of properties that is read each time the profile is used."""
VERSION: Final = 1
LONGEST_NAME: Final = 249
LARGEST_FILE_BYTES: Final = 4 << 20
LOCK_WAIT_S: Final = 5.0
LOCK_PAUSE_S: Final = 0.02
_SECRET: Final = re.compile(r"password|secret|jaas|\.key$|token$|user\.info")
_URL_WITH_PASSWORD: Final = re.compile(r"://[^/@\s]*@")
_REFERENCE: Final = re.compile(r"\$\{(file|env):[^}]*\}")
_HEADING: Final = (
    "# Profiles of the fencepost command. `fencepost profile` writes this file anew, without other comments.\n"
)


class ProfileError(Exception):
    """The file, or a name, cannot be used: the message has the reason and the remedy, but no secret."""


@dataclass(frozen=True)
class Profiles:
    """The content of the file. current: the name in use; None for none. by_name: properties by name."""

    current: str | None = None
    by_name: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def properties(self, name: str) -> Mapping[str, str]:
        """Raises ProfileError, which names the known profiles."""
        if name not in self.by_name:
            known = ", ".join(sorted(map(printable, self.by_name))[:20])
            hint = f"known: {known}" if known else "there are none; `fencepost profile create` makes one"
            raise ProfileError(f"there is no profile {name!r}; {hint}")
        return self.by_name[name]


def is_secret(name: str, value: str) -> bool:
    """Whether a property's value is a password or a key itself, rather than `${file:…}` or `${env:…}`."""
    if _URL_WITH_PASSWORD.search(value) is not None:
        return True
    return _SECRET.search(name.lower()) is not None and _REFERENCE.fullmatch(value.strip()) is None


def check_name(name: str) -> str:
    """Return the name of a profile to be made. Raises ProfileError for one that could not be named or shown."""
    if not name or name != name.strip() or not name.isprintable() or name.startswith("-"):
        raise ProfileError(
            f"{name!r} is no name for a profile: it has to be printable, without spaces at its ends, and not begin "
            "with a hyphen"
        )
    if len(name) > LONGEST_NAME:
        raise ProfileError(f"a profile's name has at most {LONGEST_NAME} characters; this one has {len(name)}")
    return name


def path_of_file() -> str:
    """The path of the file, whether or not it is there. Raises ProfileError if the user has no home directory."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            raise ProfileError("this user has no home directory: set XDG_CONFIG_HOME to a directory for settings")
        base = os.path.join(home, ".config")
    return os.path.join(base, "fencepost", "profiles.toml")


def read_profiles() -> Profiles:
    """Read the file; without one there are no profiles. Raises ProfileError."""
    try:
        path = path_of_file()
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(LARGEST_FILE_BYTES + 1)
    except ProfileError:
        return Profiles()
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}") from None
    profiles = parse_profiles(content, path)
    _check_mode(profiles, path, mode)
    return profiles


def _check_mode(profiles: Profiles, path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ProfileError(f"{path}: others may change it, and so send you elsewhere: run chmod 600 {path}")
    if mode & (stat.S_IRGRP | stat.S_IROTH) and any(
        is_secret(name, value) for properties in profiles.by_name.values() for name, value in properties.items()
    ):
        raise ProfileError(f"{path}: others can read it, and a password is in it: run chmod 600 {path}")


def parse_profiles(content: bytes, path: str) -> Profiles:
    """Read the content of a file. Raises ProfileError with path, line and reason."""
    if len(content) > LARGEST_FILE_BYTES:
        raise ProfileError(f"{path} has more than {LARGEST_FILE_BYTES} bytes")
    import tomllib

    try:
        text = content.decode("utf-8-sig")  # editors of Windows begin a file with a byte order mark
        found = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProfileError(f"{path}:{line}: it is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        reason, at, place = str(error).partition(" (at ")
        line_text = re.match(r"line (\d+)", place)
        where = line_text[1] if at and line_text else str(text.count("\n") + 1)
        raise ProfileError(f"{path}:{where}: {reason}; `fencepost profile` reads TOML") from None
    except RecursionError:
        raise ProfileError(f"{path}: its values are nested too deeply") from None
    return _checked(found, text, path)


def _checked(found: dict[str, Any], text: str, path: str) -> Profiles:
    def wrong(key: str, words: str) -> ProfileError:
        return ProfileError(f"{path}:{_line_of(key, text)}: {words}")

    version = found.get("version", VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise wrong("version", "version is no number of a format")
    if version > VERSION:
        raise wrong("version", f"version {version} is of a newer Fencepost; this one reads version {VERSION}")
    for name in found:
        if name not in ("version", "current", "profiles"):
            raise wrong(name, f"{name!r} is not known; expected version, current and profiles")
    tables = found.get("profiles", {})
    if not isinstance(tables, dict):
        raise wrong("profiles", "profiles is no table")
    by_name = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise wrong(name, f"the profile {name!r} is no table of properties")
        by_name[name] = dict(_properties(table, "", wrong))
    current = found.get("current")
    if current is not None and not (isinstance(current, str) and current in by_name):
        raise wrong("current", f"current names {current!r}, and no profile has that name: remove the line")
    return Profiles(current, by_name)


def _properties(
    table: Mapping[str, Any], prefix: str, wrong: Callable[[str, str], ProfileError]
) -> Iterator[tuple[str, str]]:
    """The properties of a table; TOML takes `sasl.mechanism`, written without quotes, for a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _properties(value, f"{prefix}{name}.", wrong)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int):
            yield f"{prefix}{name}", str(value)
        else:
            raise wrong(name, f"{prefix}{name} is neither text nor a number")


def _line_of(key: str, text: str) -> int:
    """The first line that has the key; 1 if none has it as it stands."""
    return next((number for number, line in enumerate(text.splitlines(), 1) if key in line), 1)


def file_text(profiles: Profiles) -> str:
    """The content of a file. Raises ProfileError for text that no file can hold."""
    lines = [_HEADING, f"version = {VERSION}\n"]
    if profiles.current is not None:
        lines.append(f"current = {_quoted(profiles.current)}\n")
    for name, properties in profiles.by_name.items():
        lines.append(f"\n[profiles.{_quoted(name)}]\n")
        lines += [f"{_quoted(key)} = {_quoted(value)}\n" for key, value in properties.items()]
    return "".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML: one of JSON, but for the delete character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ProfileError(f"{text!r} is not Unicode text") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def change_profiles(change: Callable[[Profiles], tuple[Profiles, T]]) -> T:
    """Change the file: read, change and replaced as a whole, so that two commands at once lose nothing of each other.

    change returns the new profiles and a result, which is returned. Raises ProfileError, also that of `change`.
    """
    path = os.path.realpath(path_of_file())  # a link to a file elsewhere stays one
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with _locked(f"{path}.lock"):
            changed, result = change(read_profiles())
            _replace(path, file_text(changed).encode())
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror or error}") from None
    return result


@contextmanager
def _locked(path: str) -> Iterator[None]:
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise ProfileError(f"another command holds {path}") from None
                time.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _replace(path: str, content: bytes) -> None:
    """Replace the file at once; a crash leaves the old one or the new one. The lock is held: nobody else writes."""
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        written = 0
        while written < len(content):
            written += os.write(descriptor, content[written:])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
