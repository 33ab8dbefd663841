"""The three roles of people, and who has which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

SCOPES: Final = ("scope", "scp")


class Role(Enum):
    """Each has the rights of those before it, too."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


def highest_role(values: Iterable[str], roles: Mapping[Role, frozenset[str]]) -> Role | None:
    """The highest role that any of the values has; None: none has one."""
    held = set(values)
    return next((role for role in reversed(Role) if held & roles.get(role, frozenset())), None)


def claim_values(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """The texts at a path of a token's claims, such as `realm_access.roles`. A claim whose own name has dots, such as
    `https://example.com/roles`, counts before the path. Anything but a text or a list of texts has no values.
    """
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        # Only scopes are a list in one text: of a group "not admin", no half is a name.
        return frozenset(found.split()) if path in SCOPES else frozenset([found])
    if isinstance(found, list | tuple):
        return frozenset(one for one in found if isinstance(one, str))
    return frozenset()
