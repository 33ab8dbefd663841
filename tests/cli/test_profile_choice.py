"""Which profile a command uses: what is nearer to the command counts more, and a password goes to its own cluster."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fencepost.cli.client_security import current_security
from fencepost.cli.connection import bootstrap_option
from fencepost.cli.profile_choice import profile_in_use, profile_names
from fencepost.cli.profile_file import Profiles, change_profiles


def logged_in(host: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"{host}:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": f"{host}-user",
        "sasl.password": "secret",
    }


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with three profiles, `current` in use, and a file of properties; no variable is set."""
    for name in ("FENCEPOST_BOOTSTRAP", "FENCEPOST_COMMAND_CONFIG", "FENCEPOST_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=file-user\nsasl.password=x\n"
    )
    profiles = {name: logged_in(name) for name in ("current", "other")}
    open_one = {"bootstrap.servers": "open:1", "command.config": str(tmp_path / "client.properties")}
    change_profiles(lambda _: (Profiles("current", {**profiles, "by-file": open_one}), None))
    return tmp_path


@click.command()
@bootstrap_option
def asking(bootstrap: str) -> None:
    """Print the address, and who logs in."""
    click.echo(f"{bootstrap} {current_security().username or '-'}")


def asked(line: str = "", environment: str = "") -> str:
    """The address and the user of a command line with these variables; for a refused one, its message."""
    variables = dict(pair.split("=", 1) for pair in environment.split())
    result = CliRunner().invoke(asking, line.split(), env=variables)
    return result.stdout.strip() if result.exit_code == 0 else result.stderr.splitlines()[-1]


def test_the_profile_in_use_gives_address_and_log_in() -> None:
    assert asked() == "current:1 current-user"


def test_without_one_in_use_everything_is_as_without_profiles() -> None:
    change_profiles(lambda found: (Profiles(None, found.by_name), None))
    assert asked() == "127.0.0.1:9092 -"
    assert asked("", "FENCEPOST_BOOTSTRAP=x:2") == "x:2 -"


@pytest.mark.parametrize(
    ("line", "environment", "expected"),
    [
        # The line counts more than variables, and those more than the profile in use.
        ("--profile other", "FENCEPOST_PROFILE=by-file", "other:1 other-user"),
        ("", "FENCEPOST_PROFILE=other", "other:1 other-user"),
        ("--profile other", "FENCEPOST_BOOTSTRAP=x:2", "other:1 other-user"),
        ("--profile other", "FENCEPOST_COMMAND_CONFIG={file}", "other:1 other-user"),
        ("--profile other --command-config {file}", "", "other:1 file-user"),
        ("", "FENCEPOST_COMMAND_CONFIG={file}", "current:1 file-user"),
        # One property of the line is laid over the profile.
        ("-X sasl.username=me", "", "current:1 me"),
        # A profile's file is read each time.
        ("--profile by-file", "", "open:1 file-user"),
        # An address from elsewhere does not get the password of a profile that the line does not name.
        ("-b x:2", "", "x:2 -"),
        ("", "FENCEPOST_BOOTSTRAP=x:2", "x:2 -"),
        ("", "FENCEPOST_BOOTSTRAP=x:2 FENCEPOST_PROFILE=other", "x:2 -"),
        ("-b x:2 --profile other", "", "x:2 other-user"),
    ],
)
def test_what_is_nearer_to_the_command_counts_more(settings: Path, line: str, environment: str, expected: str) -> None:
    file = str(settings / "client.properties")
    assert asked(line.format(file=file), environment.format(file=file)) == expected


@pytest.mark.parametrize(("line", "environment"), [("--profile nobody", ""), ("", "FENCEPOST_PROFILE=nobody")])
def test_an_unknown_profile_is_answered_with_the_known_ones(line: str, environment: str) -> None:
    assert asked(line, environment) == "Error: there is no profile 'nobody'; known: by-file, current, other"


def test_a_damaged_file_stops_a_command_that_needs_it_and_no_other(settings: Path) -> None:
    (settings / "fencepost" / "profiles.toml").write_text("version = 2\n")
    assert "version 2 is of a newer Fencepost" in asked()
    assert asked("-b x:2") == "x:2 -"


def test_a_wrong_address_in_a_profile_is_said_to_be_there() -> None:
    change_profiles(lambda _: (Profiles("bad", {"bad": {"bootstrap.servers": "nowhere"}}), None))
    assert "of the profile 'bad': expected HOST:PORT" in asked()
    change_profiles(lambda _: (Profiles("bad", {"bad": {}}), None))
    assert asked().startswith("Error: the profile 'bad' has no bootstrap.servers")


def test_a_profiles_file_that_is_gone_is_said_in_words(settings: Path) -> None:
    (settings / "client.properties").unlink()
    assert asked("--profile by-file").endswith("client.properties cannot be read: No such file or directory")


def test_names_are_completed_and_a_damaged_file_offers_none(settings: Path) -> None:
    context, parameter = click.Context(asking), asking.params[0]
    assert profile_names(context, parameter, "") == ["by-file", "current", "other"]
    assert profile_names(context, parameter, "o") == ["other"]
    (settings / "fencepost" / "profiles.toml").write_text("[")
    assert profile_names(context, parameter, "") == []


def test_outside_of_a_command_no_profile_is_in_use() -> None:
    assert profile_in_use() is None
