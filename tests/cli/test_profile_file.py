"""The file of profiles: what was written is read again, no change of others is lost, what is wrong is named by line."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.profile_file import (
    LARGEST_FILE_BYTES,
    ProfileError,
    Profiles,
    change_profiles,
    check_name,
    file_text,
    is_secret,
    parse_profiles,
    path_of_file,
    read_profiles,
)
from tests.support.broker_process import ROOT

TWO = Profiles("prod", {"prod": {"bootstrap.servers": "a:1"}, "test": {"bootstrap.servers": "b:2"}})
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the file; it is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "fencepost" / "profiles.toml"


def written(file: Path, text: str | bytes, mode: int = 0o600) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)


def refused(text: str | bytes) -> str:
    with pytest.raises(ProfileError) as caught:
        parse_profiles(text.encode() if isinstance(text, str) else text, "FILE")
    return str(caught.value)


def put(profiles: Profiles) -> None:
    change_profiles(lambda _: (profiles, None))


# What was written is read again


@given(st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=4), max_size=4), st.data())
def test_any_text_is_read_as_it_was_written(by_name: dict[str, dict[str, str]], data: st.DataObject) -> None:
    current = data.draw(st.sampled_from([None, *by_name]))
    profiles = Profiles(current, by_name)
    assert parse_profiles(file_text(profiles).encode(), "FILE") == profiles


def test_without_a_file_there_are_no_profiles() -> None:
    assert read_profiles() == Profiles()


def test_a_changed_file_holds_the_change() -> None:
    put(TWO)
    assert read_profiles() == TWO


def test_a_file_written_by_hand_needs_no_quotes(file: Path) -> None:
    written(file, 'current = "a"\n[profiles.a]\nbootstrap.servers = "x:1"\nrequest.timeout.ms = 5\nsome.flag = true\n')
    assert read_profiles().properties("a") == {
        "bootstrap.servers": "x:1",
        "request.timeout.ms": "5",
        "some.flag": "true",
    }


def test_text_that_no_file_can_hold_changes_nothing() -> None:
    put(TWO)
    with pytest.raises(ProfileError, match="is not Unicode text"):
        put(Profiles(None, {"a": {"client.id": "\udc80"}}))
    assert read_profiles() == TWO


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_profiles(b'\xef\xbb\xbf[profiles.a]\nbootstrap = "b:1"\n', "FILE").by_name == {
        "a": {"bootstrap": "b:1"}
    }


# What is wrong is named by line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 2\n", "FILE:1: version 2 is of a newer Fencepost; this one reads version 1"),
        ('version = "1"\n', "FILE:1: version is no number of a format"),
        ("version = 1\n[profiles.a\n", "FILE:2: "),
        ('[profiles.a]\nb = "1"\nb = "2"\n', "FILE:3: "),
        ("\nprofile = 1\n", "FILE:2: 'profile' is not known; expected version, current and profiles"),
        ("profiles = 1\n", "FILE:1: profiles is no table"),
        ("[profiles]\na = 1\n", "FILE:2: the profile 'a' is no table of properties"),
        ('[profiles.a]\nx = "1"\nsome.y = [1]\n', "FILE:3: some.y is neither text nor a number"),
        ('\n\ncurrent = "b"\n', "FILE:3: current names 'b', and no profile has that name: remove the line"),
        ("current = []\n", "FILE:1: current names [], and no profile has that name: remove the line"),
        (b"a = 1\n# \xff\n", "FILE:2: it is not UTF-8 text"),
        ("a = " + "[" * 100_000, "FILE"),
        (b"#" * (LARGEST_FILE_BYTES + 1), f"FILE has more than {LARGEST_FILE_BYTES} bytes"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(text: str | bytes, words: str) -> None:
    assert refused(text).startswith(words)


def test_a_file_that_is_a_directory_is_refused_in_words(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(ProfileError, match=r"profiles\.toml cannot be read: Is a directory"):
        read_profiles()


def test_a_damaged_file_is_not_replaced(file: Path) -> None:
    written(file, "version = 2\n")
    with pytest.raises(ProfileError, match="newer Fencepost"):
        put(TWO)
    assert file.read_text() == "version = 2\n"


# Passwords are for the owner alone


def test_the_file_is_made_for_its_owner_alone(file: Path) -> None:
    before = os.umask(0)
    try:
        put(TWO)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_password_that_others_can_read_is_refused_with_the_remedy(file: Path) -> None:
    written(file, '[profiles.a]\nsasl.password = "secret"\n', 0o640)
    with pytest.raises(ProfileError) as caught:
        read_profiles()
    assert str(caught.value) == f"{file}: others can read it, and a password is in it: run chmod 600 {file}"
    file.chmod(0o600)
    assert read_profiles().by_name["a"] == {"sasl.password": "secret"}


def test_others_may_read_addresses_and_the_names_of_password_files(file: Path) -> None:
    written(file, "[profiles.a]\nbootstrap.servers = \"x:1\"\nsasl.password = '${file:/etc/it}'\n", 0o644)
    assert read_profiles().by_name["a"]["bootstrap.servers"] == "x:1"


def test_a_file_that_others_can_change_is_refused(file: Path) -> None:
    written(file, '[profiles.a]\nbootstrap.servers = "x:1"\n', 0o620)
    with pytest.raises(ProfileError, match="others may change it"):
        read_profiles()


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "SASL.PASSWORD",
        "basic.auth.user.info",
        "bearer.auth.token",
    ],
)
def test_each_property_with_a_password_or_a_key_is_secret(name: str) -> None:
    assert is_secret(name, "x")
    assert is_secret(name, "x ${env:X}")
    assert not is_secret(name, "${env:X}")


def test_an_address_with_a_password_is_secret() -> None:
    assert is_secret("schema.registry.url", "https://bob:secret@registry:8081")
    assert not is_secret("schema.registry.url", "https://registry:8081/a@b")


def test_names_and_places_are_not_secret() -> None:
    assert not any(
        is_secret(name, "x")
        for name in ("sasl.username", "ssl.keystore.location", "sasl.oauthbearer.token.endpoint.url")
    )


# Two at once, and ends in the middle


def test_commands_at_the_same_time_lose_nothing_of_each_other(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from fencepost.cli.profile_file import *\n"
        "for number in range(10):\n"
        "    name = f'{sys.argv[1]}-{number}'\n"
        "    change_profiles(lambda found: (Profiles(None, {**found.by_name, name: {'a': 'b'}}), None))\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(writer)], cwd=ROOT, env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
        )
        for writer in range(4)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    assert len(read_profiles().by_name) == 40


def test_what_an_interrupted_command_left_is_no_obstacle(file: Path) -> None:
    put(TWO)
    file.with_name("profiles.toml.new").write_text("half of it")
    put(Profiles(None, TWO.by_name))
    assert read_profiles() == Profiles(None, TWO.by_name)


def test_a_link_to_a_file_elsewhere_stays_a_link(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles" / "it.toml"
    elsewhere.parent.mkdir()
    file.parent.mkdir()
    file.symlink_to(elsewhere)
    put(TWO)
    assert file.is_symlink()
    assert tomllib.loads(elsewhere.read_text())["current"] == "prod"


def test_a_directory_that_cannot_be_made_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "taken"))
    assert read_profiles() == Profiles()
    with pytest.raises(ProfileError, match=r"profiles\.toml cannot be written: Not a directory"):
        put(TWO)


def test_without_a_home_directory_there_are_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative/ones/do/not/count")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert read_profiles() == Profiles()
    with pytest.raises(ProfileError, match="set XDG_CONFIG_HOME"):
        path_of_file()


# Names


@pytest.mark.parametrize("name", ["prod", "über alles", "a.b/c", "生产", "x" * 249, 'quoted "it"', "[profiles]"])
def test_names_of_many_kinds_are_kept(name: str) -> None:
    put(Profiles(check_name(name), {name: {"a": "b"}}))
    assert read_profiles().current == name


@pytest.mark.parametrize("name", ["", " a", "a ", "-a", "a\nb", "a\x00", "a\u202eb", "x" * 250])
def test_a_name_that_could_not_be_named_or_shown_is_refused(name: str) -> None:
    with pytest.raises(ProfileError):
        check_name(name)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ProfileError, match="there is no profile 'x'; known: prod, test"):
        TWO.properties("x")
    with pytest.raises(ProfileError, match="there are none; `fencepost profile create` makes one"):
        Profiles().properties("x")
