"""Addresses of registries."""

from __future__ import annotations

import pytest

from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.schema import SchemaError


@pytest.mark.parametrize(
    "url", ["localhost:8081", "ftp://host", "http://", "http://host:0", "http://host:x", "http://h?a=b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SchemaError, match="such as http://"):
        RegistryOptions((url,))


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(SchemaError, match=r"basic\.auth\.user\.info") as failure:
        RegistryOptions(("http://ann:hunter2@127.0.0.1:8081",))
    assert "hunter2" not in str(failure.value)


def test_secrets_are_not_in_the_text_of_options() -> None:
    text = repr(RegistryOptions(("https://registry:8081/apis/ccompat/v7",), ("ann", "hunter2"), "token"))
    assert "hunter2" not in text
    assert "token" not in text


def test_no_address_is_none() -> None:
    with pytest.raises(SchemaError, match="no address"):
        RegistryOptions(())
