"""Which registry options and properties name."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fencepost.cli.client_properties import Property, WrongPropertiesError
from fencepost.cli.client_security import security_options
from fencepost.cli.schema_options import current_masking, current_registry, masking_option, registry_of, registry_option
from fencepost.schemas.schema import SchemaError


def properties(**values: str) -> dict[str, Property]:
    return {name.replace("_", "."): Property(value, "client.properties:1") for name, value in values.items()}


def test_the_option_counts_more_than_the_property() -> None:
    known = properties(schema_registry_url="http://a:1/, http://b:2/api/")
    found = registry_of(known, None)
    assert found is not None
    assert found.urls == ("http://a:1", "http://b:2/api")
    other = registry_of(known, "http://c:3")
    assert other is not None
    assert other.urls == ("http://c:3",)
    assert registry_of({}, None) is None


@pytest.mark.parametrize("name", ["basic_auth_user_info", "schema_registry_basic_auth_user_info"])
def test_a_name_and_a_password_are_properties(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", "ann:hunter:2")
    found = registry_of(properties(**{name: "${env:REGISTRY_USER}"}), "http://a:1")
    assert found is not None
    assert found.user == ("ann", "hunter:2")


def test_a_token_is_a_property() -> None:
    found = registry_of(properties(bearer_auth_token="abc"), "http://a:1")
    assert found is not None
    assert found.token == "abc"


def test_what_is_not_served_is_refused_with_its_place() -> None:
    with pytest.raises(WrongPropertiesError, match=r"client\.properties:1: .*SASL_INHERIT: only USER_INFO"):
        registry_of(properties(basic_auth_credentials_source="SASL_INHERIT"), "http://a:1")
    with pytest.raises(WrongPropertiesError, match=r"client\.properties:1: .*must be NAME:PASSWORD") as failure:
        registry_of(properties(basic_auth_user_info="hunter2"), "http://a:1")
    assert "hunter2" not in str(failure.value)
    with pytest.raises(SchemaError, match="such as http"):
        registry_of({}, "a:1")


def test_certificates_are_properties_of_the_registry(tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_text("no certificate")
    known = {"schema.registry.ssl.truststore.location": Property(str(authority), "client.properties:1")}
    with pytest.raises(WrongPropertiesError, match=r"client\.properties:1: ssl\.truststore\.location"):
        registry_of(known, "https://a:1")


@click.command()
@security_options
@registry_option
@masking_option
def command() -> None:
    registry, masking = current_registry(), current_masking()
    click.echo(f"{registry.urls if registry else None} {masking is not None}")


def test_a_command_gets_the_registry_and_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "masking"
    path.write_text("orders value hide")
    result = CliRunner().invoke(command, ["-X", "schema.registry.url=http://a:1", "--masking", str(path)])
    assert result.output == "('http://a:1',) True\n"
    assert CliRunner().invoke(command, []).output == "None False\n"


def test_wrong_rules_and_addresses_end_a_command_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "masking"
    path.write_text("\norders value blur")
    for arguments, reason in (
        (["--masking", str(path)], f"{path}:2: blur"),
        (["--masking", str(tmp_path / "none")], "none cannot be read: No such file"),
        (["--schema-registry", "a:1"], "such as http"),
    ):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 1
        assert reason in result.output


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "fastavro":
            raise ModuleNotFoundError("No module named 'fastavro'", name="fastavro")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    result = CliRunner().invoke(command, ["--schema-registry", "http://a:1"])
    assert result.exit_code == 1
    assert (
        "values with schemas need fastavro, which is not installed: pip install 'fencepost[schemas]'" in result.output
    )
