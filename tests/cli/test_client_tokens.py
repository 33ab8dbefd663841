"""Tokens of the command line: unsigned ones for tries, those in files, and what is missing for a provider."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.client_properties import Property, WrongPropertiesError
from fencepost.cli.client_tokens import UNSIGNED_LIFETIME_S, token_source

URL = "sasl.oauthbearer.token.endpoint.url"


def at(url: str) -> dict[str, Property]:
    return {URL: Property(url, "client.properties:3")}


def part_of(token: str, index: int) -> Any:
    text = token.split(".")[index]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_an_unsigned_token_has_the_given_claims_and_a_lifetime() -> None:
    token = token_source({}, {"unsecuredLoginStringClaim_sub": "alice"})()
    claims = part_of(token, 1)
    assert (part_of(token, 0), claims["sub"], token[-1]) == ({"alg": "none"}, "alice", ".")
    assert claims["exp"] - claims["iat"] == UNSIGNED_LIFETIME_S
    assert abs(claims["iat"] - time.time()) < 60


@pytest.mark.parametrize("slashes", ["file:", "file://", "file:///"])
def test_a_token_in_a_file_is_read_again_for_each_connection(tmp_path: Path, slashes: str) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    read = token_source(at(f"{slashes}{str(path).lstrip('/') if slashes == 'file:///' else path}"), {})
    assert read() == "first"
    path.write_text("second")
    assert read() == "second"
    path.unlink()
    with pytest.raises(WrongPropertiesError, match=f"client.properties:3: {URL}: .*No such file"):
        read()


def test_a_file_of_other_bytes_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(WrongPropertiesError, match="it is no token"):
        token_source(at(f"file://{tmp_path}/token"), {})()


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        ({}, {}, f"sasl.mechanism=OAUTHBEARER needs {URL}"),
        (at("ftp://x"), {}, "client.properties:3: .*expected https://… or file:///…"),
        (at("https://x"), {"clientId": "a"}, "client.properties:3: .* needs .*client.id and .*client.secret"),
    ],
)
def test_what_is_missing_is_named(properties: dict[str, Property], options: dict[str, str], expected: str) -> None:
    with pytest.raises(WrongPropertiesError, match=expected):
        token_source(properties, options)


def test_a_provider_that_does_not_answer_is_named_and_the_password_is_not() -> None:
    read = token_source(at("http://127.0.0.1:1/token"), {"clientId": "a", "clientSecret": "hidden"})
    with pytest.raises(WrongPropertiesError, match=r"http://127\.0\.0\.1:1/token gave no token") as caught:
        read()
    assert "hidden" not in str(caught.value)
