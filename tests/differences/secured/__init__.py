"""Themes about a broker that is secured: they are asked as the super user and as three users, of both brokers with the
settings of `tests.differences.secured.sides`."""

from __future__ import annotations

from collections.abc import Callable

from tests.differences.exchange import Exchange
from tests.differences.secured import rights, single_rights

SECURED: dict[str, Callable[[Exchange], None]] = {
    "rights": rights.run,
    "single_rights": single_rights.run,
}
