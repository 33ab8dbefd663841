"""Unsigned tokens: accepted where they are allowed, and checked all the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from fencepost.broker.security.sasl.claims import Expected, validate_unsecured
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken

NOW_S = 1_800_000_000


CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


def encoded(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsigned(claims: Mapping[str, Any], head: Any = None, signature: str = "") -> str:
    return f"{encoded(head or {'alg': 'none'})}.{encoded(claims)}.{signature}"


def test_unsigned_tokens_are_accepted_where_they_are_allowed() -> None:
    token = unsigned({"sub": "alice", "exp": NOW_S + 60})
    assert validate_unsecured(token, Expected(), NOW_S * 1000) == Bearer("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.",
        unsigned(CLAIMS, {"alg": "HS256"}),
        unsigned(CLAIMS, ["none"]),
        unsigned(CLAIMS, signature="AAAA"),
        unsigned({**CLAIMS, "exp": NOW_S - 60}),
        unsigned({"sub": "alice"}),
        encoded({"alg": "none"}) + "." + encoded(b"[" * 100_000) + ".",
    ],
)
def test_other_tokens_are_refused_there_too(token: str) -> None:
    assert isinstance(validate_unsecured(token, Expected(), NOW_S * 1000), InvalidToken)
