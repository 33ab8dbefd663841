"""`fencepost users`: in a data directory, in a users file and, with a broker, over the wire."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost import Broker
from fencepost.broker.security.sasl.users_file import read_users
from fencepost.cli.commands import fencepost
from tests.broker.network.test_sasl_listener import SocketClient, broker


def users(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(fencepost, ["users", *arguments], input=typed)


def done(*arguments: str, typed: str = "") -> str:
    result = users(*arguments, typed=typed)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str, typed: str = "") -> str:
    result = users(*arguments, typed=typed)
    assert result.exit_code != 0
    return result.output


def listed(*place: str) -> list[tuple[str, str, int | None]]:
    return [(row["user"], row["mechanism"], row["iterations"]) for row in json.loads(done("list", "--json", *place))]


async def log_in(directory: Path, mechanism: str, password: str) -> int:
    """The error of alice's log-in with a broker on the directory."""
    async with broker(directory, mechanism) as node:
        client = await SocketClient.connect(node)
        error = await client.scram("alice", password, mechanism)
        await client.close()
        return error


# A data directory


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_that_was_added_before_the_first_start_can_log_in(tmp_path: Path, mechanism: str) -> None:
    directory = tmp_path / "made" / "by the command"
    assert (
        done("set", "alice", "--data-dir", str(directory), typed="contraseña\n")
        == "alice: SCRAM-SHA-256, SCRAM-SHA-512\n"
    )
    assert asyncio.run(log_in(directory, mechanism, "contraseña")) == 0
    assert asyncio.run(log_in(directory, mechanism, "wrong")) == 58


def test_users_of_a_stopped_broker_are_changed_and_removed(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path))
    done("set", "alice", "--password", "first", *place)
    assert asyncio.run(log_in(tmp_path, "SCRAM-SHA-512", "first")) == 0
    done("set", "alice", "--password", "second", "--mechanism", "scram-sha-512", "--iterations", "4096", *place)
    assert listed(*place) == [("alice", "SCRAM-SHA-256", 8192), ("alice", "SCRAM-SHA-512", 4096)]
    assert asyncio.run(log_in(tmp_path, "SCRAM-SHA-512", "second")) == 0
    assert asyncio.run(log_in(tmp_path, "SCRAM-SHA-256", "first")) == 0
    done("remove", "alice", "--mechanism", "SCRAM-SHA-256", *place)
    assert listed(*place) == [("alice", "SCRAM-SHA-512", 4096)]
    done("remove", "alice", *place)
    assert listed(*place) == []
    assert "there is no user 'alice'" in refused("remove", "alice", *place)
    assert asyncio.run(log_in(tmp_path, "SCRAM-SHA-512", "second")) == 58


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async def story() -> str:
        async with broker(tmp_path, "SCRAM-SHA-512"):
            return await asyncio.to_thread(refused, "set", "alice", "--password", "x", "--data-dir", str(tmp_path))

    output = asyncio.run(story())
    assert "is in use" in output
    assert "use --bootstrap" in output


def test_a_directory_that_is_missing_is_named_when_users_are_shown(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    assert f"there is no directory {missing}" in refused("list", "--data-dir", missing)
    assert not (tmp_path / "none").exists()


def test_a_directory_whose_metadata_are_lost_is_not_given_others(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert "holds 1 partitions" in refused("set", "alice", "--password", "x", "--data-dir", str(tmp_path))


# A users file


def test_users_of_a_file_are_set_listed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "users"
    place = ("--users-file", str(path))
    assert done("set", "alice", *place, typed="secret\n") == "alice: PLAIN\n"
    done("set", "bob", "--password", "other", *place)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    assert read_users(str(path))["alice"].fits("secret")
    assert listed(*place) == [("alice", "PLAIN", None), ("bob", "PLAIN", None)]
    done("remove", "alice", *place)
    assert list(read_users(str(path))) == ["bob"]
    assert "there is no user 'alice'" in refused("remove", "alice", *place)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("nonsense\n")
    assert f"{path}:1: expected NAME" in refused("set", "alice", "--password", "x", "--users-file", str(path))
    missing = str(tmp_path / "none" / "users")
    assert f"cannot write {missing}: No such file" in refused("set", "a", "--password", "x", "--users-file", missing)
    assert f"cannot read {missing}" in refused("list", "--users-file", missing)


@pytest.mark.parametrize("name", ["#alice", "a\nb"])
def test_names_that_a_file_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    assert "a name has no" in refused("set", name, "--password", "x", "--users-file", str(tmp_path / "users"))


# Over the wire


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with Broker() as started:
        yield started.bootstrap_servers


def test_users_of_a_running_broker_are_set_listed_and_removed(running: str) -> None:
    place = ("--bootstrap", running)
    assert done("set", "alice", "--password", "first", *place) == "alice: SCRAM-SHA-256, SCRAM-SHA-512\n"
    done("set", "alice", "--mechanism", "SCRAM-SHA-256", "--iterations", "4096", *place, typed="second\n")
    done("set", "bob", "--password", "x", "--mechanism", "SCRAM-SHA-512", *place)
    assert listed(*place) == [
        ("alice", "SCRAM-SHA-256", 4096),
        ("alice", "SCRAM-SHA-512", 8192),
        ("bob", "SCRAM-SHA-512", 8192),
    ]
    done("remove", "alice", "--mechanism", "SCRAM-SHA-512", *place)
    assert "there is no user 'bob'" in refused("remove", "bob", "--mechanism", "SCRAM-SHA-256", *place)
    done("remove", "alice", *place)
    assert "alice" in refused("remove", "alice", *place)
    done("remove", "bob", *place)
    assert done("list", *place) == "no users\n"


# What is asked for


@pytest.mark.parametrize(
    ("arguments", "typed", "problem"),
    [
        (("set", "alice"), "\n", "the password cannot be empty"),
        (("set", ""), "x\n", "the name of a user cannot be empty"),
        (("set", "alice", "--data-dir", "d", "--users-file", "f"), "x\n", "exclude each other"),
        (("set", "alice", "--mechanism", "PLAIN"), "x\n", "Invalid value for '--mechanism'"),
        (("set", "alice", "--iterations", "100"), "x\n", "4096<=x<=16384"),
        (("set", "alice", "--users-file", "f", "--mechanism", "SCRAM-SHA-256"), "x\n", "leave --mechanism out"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], typed: str, problem: str) -> None:
    result: Any = users(*arguments, typed=typed)
    assert result.exit_code == 2
    assert problem in result.output
