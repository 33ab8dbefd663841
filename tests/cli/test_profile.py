"""`fencepost profile`: what is made can be used, changed, renamed and deleted, and no password is ever shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from fencepost.cli.profile_file import read_profiles

PASSWORD = "very secret"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv("FENCEPOST_BOOTSTRAP", raising=False)


def run(*arguments: str, **options: Any) -> Result:
    """Run `fencepost profile` with these arguments."""
    return CliRunner().invoke(fencepost, ["profile", *arguments], prog_name="fencepost", **options)


def done(*arguments: str, **options: Any) -> Any:
    """The JSON of a command that succeeds."""
    result = run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    """The message of a command that does not succeed."""
    result = run(*arguments)
    assert result.exit_code != 0, result.output
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def made(name: str, *options: str) -> None:
    done("create", name, "--bootstrap", f"{name}:9092", *options)


def test_the_first_profile_is_in_use_only_if_it_is_asked_for() -> None:
    made("test")
    assert read_profiles().current is None
    made("prod", "--use")
    assert read_profiles().current == "prod"
    assert [(row["name"], row["in_use"]) for row in done("list")] == [("prod", True), ("test", False)]


def test_no_command_shows_a_password() -> None:
    made("prod", "-X", f"sasl.password={PASSWORD}", "-X", "sasl.username=bob", "--use")
    shown = [run("list"), run("show"), run("show", "prod", "--json"), run("list", "--json"), run("use", "prod")]
    assert [result.exit_code for result in shown] == [0] * 5
    assert all(PASSWORD not in result.output for result in shown)
    assert done("show")["properties"] == {
        "bootstrap.servers": "prod:9092",
        "sasl.password": "(hidden)",
        "sasl.username": "bob",
    }


def test_the_place_of_a_password_is_shown() -> None:
    made("prod", "-X", "sasl.password=${file:/run/it}")
    assert done("show", "prod")["properties"]["sasl.password"] == "${file:/run/it}"


def test_a_file_of_kafkas_tools_is_copied_and_options_count_more(tmp_path: Path) -> None:
    source = tmp_path / "client.properties"
    source.write_text("bootstrap.servers=a:1,b:2\nsecurity.protocol=SSL\nssl.truststore.location=/x\n")
    assert done("create", "one", "--from", str(source))["name"] == "one"
    assert done("create", "two", "--from", "-", "-b", "c:3", input=source.read_text())["name"] == "two"
    assert done("show", "one")["properties"]["bootstrap.servers"] == "a:1,b:2"
    assert done("show", "two")["properties"]["bootstrap.servers"] == "c:3"
    assert done("show", "two")["properties"]["security.protocol"] == "SSL"


def test_a_named_file_is_kept_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    monkeypatch.chdir(tmp_path)
    made("prod", "--command-config", "client.properties")
    assert done("show", "prod")["properties"]["command.config"] == str(tmp_path / "client.properties")


def test_properties_are_changed_and_removed_one_by_one() -> None:
    made("prod", "-X", "sasl.username=bob", "-X", "client.id=x")
    done("set", "prod", "-X", "sasl.username=eve", "--unset", "client.id")
    assert done("show", "prod")["properties"] == {"bootstrap.servers": "prod:9092", "sasl.username": "eve"}
    assert "has no property 'client.id'; it has bootstrap.servers, sasl.username" in refused(
        "set", "prod", "--unset", "client.id"
    )
    assert refused("set", "prod", "--unset", "bootstrap.servers") == "a profile needs bootstrap.servers"


def test_the_profile_in_use_can_be_renamed_and_deleted() -> None:
    made("old", "--use")
    assert done("rename", "old", "new") == {
        "name": "new",
        "old_name": "old",
        "in_use": True,
        "message": "profile old is now new",
    }
    assert read_profiles().current == "new"
    assert done("delete", "new", "--yes")["was_in_use"] is True
    assert read_profiles().current is None
    assert run("list").stdout == "no profiles yet\n"
    assert refused("show") == "no profile is in use; `fencepost profile list` shows which there are"


def test_none_can_be_in_use() -> None:
    made("prod", "--use")
    assert done("use", "--none") == {"name": None, "bootstrap": None, "message": "no profile is in use"}
    assert read_profiles().current is None
    assert refused("use") == refused("use", "prod", "--none") == "name one profile, or give --none"


def test_nothing_is_deleted_without_an_answer() -> None:
    made("prod")
    assert "--yes answers beforehand" in refused("delete", "prod")
    assert set(read_profiles().by_name) == {"prod"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "prod", "-b", "x:1"), "there is a profile 'prod' already; `fencepost profile set` changes it"),
        (("rename", "test", "prod"), "there is a profile 'prod' already"),
        (("create", "new"), "name the cluster's brokers with --bootstrap HOST:PORT"),
        (("create", "new", "-b", "nowhere"), "expected HOST:PORT"),
        (("create", "new", "-b", "x:1", "-X", "sasl.mechansm=PLAIN"), "did you mean sasl.mechanism?"),
        (("create", "new", "-b", "x:1", "--from", "/no/such/file"), "/no/such/file cannot be read"),
        (("create", "new", "-b", "x:1", "--command-config", "/no/such/file"), "/no/such/file cannot be read"),
        (("create", "a\nb", "-b", "x:1"), "is no name for a profile"),
        (("use", "nobody"), "there is no profile 'nobody'; known: prod, test"),
        (("show", "nobody"), "there is no profile 'nobody'; known: prod, test"),
        (("set", "nobody", "-b", "x:1"), "there is no profile 'nobody'; known: prod, test"),
        (("delete", "nobody", "--yes"), "there is no profile 'nobody'; known: prod, test"),
        (("rename", "nobody", "x"), "there is no profile 'nobody'; known: prod, test"),
        (("set", "prod"), "say what to change: --bootstrap, --command-config, --from, -X, or --unset"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(arguments: tuple[str, ...], words: str) -> None:
    made("prod")
    made("test")
    before = read_profiles()
    assert words in refused(*arguments)
    assert read_profiles() == before


def test_a_profile_is_used_by_the_other_commands() -> None:
    done("create", "closed", "--bootstrap", "127.0.0.1:1", "--use")
    result = CliRunner().invoke(fencepost, ["topics", "list"])
    assert result.stderr.endswith(
        "no broker answers at 127.0.0.1:1: connection refused. The address is that of the profile 'closed'; --profile "
        "or --bootstrap name another\n"
    )


def test_the_path_of_the_file_is_shown(tmp_path: Path) -> None:
    assert done("path")["path"] == str(tmp_path / "settings" / "fencepost" / "profiles.toml")
