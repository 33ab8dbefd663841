"""Principals: the names under which rules mention clients, such as `User:alice`.

Source: Kafka's KafkaPrincipal and SecurityUtils.parseKafkaPrincipal.
"""

from __future__ import annotations

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""
EVERYONE: Final = "User:*"
"""In a rule: all principals."""
NODE: Final = "Node:of this broker"
"""The principal of another process of the same broker. Clients are users; none gets it."""


def user_principal(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"


def principal_problem(principal: str) -> str | None:
    """Return the reason why a text is no principal; None if it is `Type:name`."""
    if ":" in principal:
        return None
    return (
        f"Could not parse principal from `{principal}` (no colon is present separating the principal type from the "
        "principal name)"
    )
