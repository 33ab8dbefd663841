"""Properties of clients: each with the place where it was written, and secrets that may stand elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.client_properties import Property, WrongPropertiesError, read_file, secret


def test_each_property_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# for tests\na=1\n\nb : 2\nc=\\\n  3\n")
    assert read_file(str(path)) == {
        "a": Property("1", f"{path}:2"),
        "b": Property("2", f"{path}:4"),
        "c": Property("3", f"{path}:5"),
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongPropertiesError, match="missing cannot be read: No such file"):
        read_file(str(tmp_path / "missing"))
    (tmp_path / "bytes").write_bytes(b"a=\xff")
    with pytest.raises(WrongPropertiesError, match="bytes cannot be read: it is not UTF-8 text"):
        read_file(str(tmp_path / "bytes"))


def test_a_secret_may_stand_in_the_environment_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_A_TEST", "hidden")
    (tmp_path / "secret").write_text("in a file\n")
    properties = {
        "plain": Property("as it is", "it:1"),
        "env": Property("${env:TOKEN_OF_A_TEST}", "it:2"),
        "file": Property(f"${{file:{tmp_path}/secret}}", "it:3"),
        "wrong": Property("${env:NO_SUCH_NAME_OF_A_TEST}", "it:4"),
    }
    assert [secret(properties, name) for name in ("plain", "env", "file", "missing")] == [
        "as it is",
        "hidden",
        "in a file",
        None,
    ]
    with pytest.raises(WrongPropertiesError, match="it:4: wrong: "):
        secret(properties, "wrong")
