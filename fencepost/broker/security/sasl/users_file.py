"""The file of `fencepost.plain.users.file`: users of PLAIN with hashes of their passwords.

One line for each user: `name:scrypt$N$R$P$SALT$HASH`, with N, R and P of RFC 7914 and the rest in base64; empty lines
and those that begin with # are skipped. `fencepost users` writes them. A file that has changed is read again at the
next log-in, without a restart.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.security.sasl.fair_turns import FairTurns

log = get_logger(__name__)

SCHEME: Final = "scrypt"
THREADS: Final = 2
"""Passwords that are hashed at a time: each takes 16 MiB, and about 50 ms of a processor."""
MAXIMUM_MEMORY_BYTES: Final = 64 * 1024 * 1024
MAXIMUM_FILE_BYTES: Final = 16 * 1024 * 1024


class UsersFileError(ValueError):
    """The file cannot be used; the message names it and the line, and no hash."""


class Cost(NamedTuple):
    """The cost of one hash: 128 * n * r bytes, and p times the time."""

    n: int = 16_384
    r: int = 8
    p: int = 1


class PasswordHash(NamedTuple):
    """The hash of one user's password."""

    cost: Cost
    salt: bytes
    digest: bytes

    def fits(self, password: str) -> bool:
        """Whether it is the hash of a password. Takes long."""
        return hmac.compare_digest(_digest(password, self.cost, self.salt), self.digest)

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"{SCHEME}${self.cost.n}${self.cost.r}${self.cost.p}${salt}${digest}"


def hash_password(password: str) -> PasswordHash:
    """Hash a password with a random salt. Takes long."""
    cost, salt = Cost(), secrets.token_bytes(16)
    return PasswordHash(cost, salt, _digest(password, cost, salt))


def _digest(password: str, cost: Cost, salt: bytes) -> bytes:
    encoded = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(encoded, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=2 * MAXIMUM_MEMORY_BYTES, dklen=32)


def read_users(path: str) -> dict[str, PasswordHash]:
    """Read a file. Raises UsersFileError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAXIMUM_FILE_BYTES + 1)
        if len(content) > MAXIMUM_FILE_BYTES:
            raise UsersFileError(f"{path} has more than {MAXIMUM_FILE_BYTES} bytes")
        lines = content.decode().splitlines()
    except OSError as error:
        raise UsersFileError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsersFileError(f"{path} is not UTF-8") from None
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.rpartition(":")
        if not name:
            raise UsersFileError(f"{path}:{number}: expected NAME:{SCHEME}$…; `fencepost users set` writes such lines")
        if name in users:
            raise UsersFileError(f"{path}:{number}: the user {name!r} is there twice")
        try:
            users[name] = _read_hash(text.strip())
        except (ValueError, binascii.Error):
            raise UsersFileError(
                f"{path}:{number}: the hash of {name!r} cannot be read; expected {SCHEME}$N$R$P$SALT$HASH, as "
                "`fencepost users set` writes it"
            ) from None
    return users


def write_users(path: str, users: Mapping[str, PasswordHash]) -> None:
    """Replace a file in one step; only its owner can read it. Raises OSError."""
    text = "".join(f"{name}:{kept}\n" for name, kept in sorted(users.items()))
    written = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def _read_hash(text: str) -> PasswordHash:
    scheme, n, r, p, salt, digest = text.split("$")
    cost = Cost(int(n), int(r), int(p))
    is_sound = cost.n > 1 and cost.n & (cost.n - 1) == 0 and cost.r > 0 and 0 < cost.p <= 16
    if scheme != SCHEME or not is_sound or 128 * cost.n * cost.r > MAXIMUM_MEMORY_BYTES:
        raise ValueError(text)
    kept = PasswordHash(cost, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True))
    if not kept.salt or len(kept.digest) != 32:
        raise ValueError(text)
    return kept


class UsersFile:
    """The users of a file. Passwords are hashed on THREADS threads, for however many clients; addresses take turns."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="password")
        self._turns = FairTurns(THREADS)
        self._users: Mapping[str, PasswordHash] = {}
        self._nobody = PasswordHash(Cost(), secrets.token_bytes(16), bytes(32))
        self._read_of: tuple[int, ...] | None = None

    async def open(self) -> None:
        """Read the file. Raises UsersFileError."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._read)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def has(self, name: str) -> bool:
        return name in self._users

    async def check(self, name: str, password: str, host: str = "") -> bool:
        """Whether there is such a user with this password; takes equally long for both answers.

        host: the client's address, which has a share of the hashes. Raises TooManyWaitingError.
        """
        async with self._turns.turn(host, name):
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._check, name, password)

    # On a thread

    def _warn_of_other_readers(self) -> None:
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(os.stat(self._path).st_mode)
            if mode & 0o077:
                log.warning(
                    "users_file_open_to_others",
                    path=self._path,
                    mode=f"{mode:o}",
                    hint="let only the user that the broker runs as read it: chmod 600",
                )

    def _check(self, name: str, password: str) -> bool:
        self._read_if_changed()
        users = self._users
        fits = users.get(name, self._nobody).fits(password)
        return fits & (name in users)

    def _read_if_changed(self) -> None:
        try:
            if _state_of(self._path) != self._read_of:
                self._read()
        except (OSError, UsersFileError) as error:
            if self._read_of is not None:  # once for each change
                log.error("users_file_not_read", reason=str(error), hint="the users that were read last are kept")  # noqa: TRY400  # the reason says it all
            self._read_of = None

    def _read(self) -> None:
        read_of = _state_of(self._path) if os.path.exists(self._path) else None
        users = read_users(self._path)
        costs = Counter(kept.cost for kept in users.values()).most_common(1)
        if costs:
            self._nobody = self._nobody._replace(cost=costs[0][0])
        self._users, self._read_of = users, read_of
        self._warn_of_other_readers()


def _state_of(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino
