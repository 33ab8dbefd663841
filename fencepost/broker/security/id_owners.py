"""Owners of transactional ids: an operator names the only principals that may use the ids of a glob. Pure.

An ACL cannot say that: a permission on a prefix reaches every id below it, and a denial has no exception.
"""

from __future__ import annotations

import re
from fnmatch import translate

from fencepost.broker.security.principal import principal_problem

EXAMPLE = "orders-*=User:orders; orders-*=User:operator"


class IdOwners:
    """The owners, by globs of transactional ids. Several entries with globs that match an id all count.

    text: `GLOB=PRINCIPAL` entries with semicolons between them. Raises ValueError.
    """

    def __init__(self, text: str = "") -> None:
        self._owners: list[tuple[re.Pattern[str], str]] = []
        for entry in filter(None, map(str.strip, text.split(";"))):
            glob, separator, principal = (part.strip() for part in entry.partition("="))
            if not (glob and separator) or principal_problem(principal) is not None:
                raise ValueError(f"expected GLOB=PRINCIPAL entries, such as {EXAMPLE}; got {entry!r}")
            self._owners.append((re.compile(translate(glob)), principal))

    def refuses(self, principal: str, transactional_id: str) -> bool:
        """Whether an id has owners, and the principal is none of them."""
        owners = [owner for glob, owner in self._owners if glob.match(transactional_id)]
        return bool(owners) and principal not in owners
