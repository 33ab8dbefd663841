"""The file with the users of PLAIN: what it holds, what is refused, and who may read it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.security.sasl.fair_turns import MAXIMUM_WAITING
from fencepost.broker.security.sasl.users_file import (
    THREADS,
    PasswordHash,
    UsersFile,
    UsersFileError,
    hash_password,
    read_users,
    write_users,
)
from tests.support.captured_events import capture_logs

# RFC 7914, section 12: the password "pleaseletmein" with the salt "SodiumChloride", N=16384, r=8, p=1; of 64 bytes the
# first 32, as scrypt's output is a stream of PBKDF2.
RFC_7914 = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"


def replace(path: Path, content: str) -> None:
    path.write_text(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
async def users_file(path: Path) -> AsyncIterator[UsersFile]:
    write_users(str(path), {"alice": hash_password("alice-secret"), "b:ob": hash_password("contraseña")})
    file = UsersFile(str(path))
    await file.open()
    yield file
    file.close()


async def test_users_have_their_passwords(users_file: UsersFile) -> None:
    assert await users_file.check("alice", "alice-secret")
    assert await users_file.check("b:ob", "contraseña")
    assert not await users_file.check("alice", "contraseña")
    assert not await users_file.check("nobody", "alice-secret")
    assert users_file.has("alice")
    assert not users_file.has("nobody")


def test_hashes_are_scrypt_as_its_rfc_has_it(path: Path) -> None:
    path.write_text("user:scrypt$16384$8$1$U29kaXVtQ2hsb3JpZGU=$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofI=\n")
    kept = read_users(str(path))["user"]
    assert kept.digest.hex() == RFC_7914
    assert kept.fits("pleaseletmein")
    assert not kept.fits("pleaseletmeout")


async def test_an_unknown_user_costs_a_hash_like_those_of_the_others(
    users_file: UsersFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[object] = []
    fits = PasswordHash.fits

    def noted(kept: PasswordHash, password: str) -> bool:
        costs.append(kept.cost)
        return fits(kept, password)

    monkeypatch.setattr(PasswordHash, "fits", noted)
    await users_file.check("alice", "wrong")
    await users_file.check("nobody", "wrong")
    assert len(costs) == 2
    assert costs[0] == costs[1]


async def test_a_changed_file_counts_at_the_next_log_in(users_file: UsersFile, path: Path) -> None:
    write_users(str(path), {"alice": hash_password("other")})
    assert await users_file.check("alice", "other")
    assert not await users_file.check("b:ob", "contraseña")


async def test_a_file_that_becomes_unreadable_keeps_its_users_and_is_named_once(
    users_file: UsersFile, path: Path
) -> None:
    replace(path, "nonsense\n")
    with capture_logs() as lines:
        assert await users_file.check("alice", "alice-secret")
        assert await users_file.check("alice", "alice-secret")
    assert [line["event"] for line in lines] == ["users_file_not_read"]
    write_users(str(path), {"alice": hash_password("other")})
    assert await users_file.check("alice", "other")


def test_only_its_owner_can_read_the_file(path: Path) -> None:
    previous = os.umask(0)
    try:
        write_users(str(path), {"alice": hash_password("secret")})
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["users"], "nothing else is left"


async def test_a_file_that_others_can_read_is_warned_of(path: Path) -> None:
    write_users(str(path), {"alice": hash_password("secret")})
    os.chmod(path, 0o644)
    file = UsersFile(str(path))
    with capture_logs() as lines:
        await file.open()
    file.close()
    assert [(line["event"], line["mode"]) for line in lines] == [("users_file_open_to_others", "644")]


def test_comments_and_empty_lines_are_skipped(path: Path) -> None:
    path.write_text(f"# users\n\nalice:{hash_password('x')}\n")
    assert list(read_users(str(path))) == ["alice"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("alice", ":1: expected NAME:scrypt"),
        ("\nalice:secret", ":2: the hash of 'alice' cannot be read"),
        ("alice:scrypt$16384$8$1$AAAA", "cannot be read"),
        ("alice:scrypt$16385$8$1$AAAA$AAAA", "cannot be read"),
        ("alice:scrypt$1073741824$8$1$AAAA$AAAA", "cannot be read"),
        ("alice:scrypt$16384$8$1000000$AAAA$AAAA", "cannot be read"),
        ("alice:bcrypt$16384$8$1$AAAA$AAAA", "cannot be read"),
        ("alice:scrypt$16384$8$1$AAAA$AA!A", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_without_the_hash(path: Path, content: str, problem: str) -> None:
    path.write_text(content + "\n")
    with pytest.raises(UsersFileError) as raised:
        read_users(str(path))
    assert problem in str(raised.value)
    assert "AAAA" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_user_that_is_there_twice_is_refused(path: Path) -> None:
    line = f"alice:{hash_password('x')}\n"
    path.write_text(line + line)
    with pytest.raises(UsersFileError, match="'alice' is there twice"):
        read_users(str(path))


async def test_a_missing_file_is_named(path: Path) -> None:
    file = UsersFile(str(path))
    with pytest.raises(UsersFileError, match="No such file"):
        await file.open()
    file.close()


def test_hashes_of_one_password_differ() -> None:
    assert str(hash_password("x")) != str(hash_password("x"))
    assert hashlib.sha256(b"x").hexdigest() not in str(hash_password("x"))


async def test_wrong_passwords_of_one_address_keep_nobody_of_another_waiting(
    users_file: UsersFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def fits(_: PasswordHash, password: str) -> bool:
        hashed.append(password)
        return password == "right"

    monkeypatch.setattr(PasswordHash, "fits", fits)
    strangers = [
        asyncio.get_running_loop().create_task(users_file.check("nobody", "wrong", "10.0.0.1"))
        for _ in range(MAXIMUM_WAITING)
    ]
    await asyncio.sleep(0)
    assert await users_file.check("alice", "right", "10.0.0.2")
    assert len(hashed) <= 3 * THREADS
    for stranger in strangers:
        assert not await stranger
