"""Themes about a broker that is secured: they are asked as the super user and as three users, of both brokers with the
settings of `tests.differences.secured.sides`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.differences.exchange import Exchange
from tests.differences.secured import authentication, random_acls, rights, single_rights

SECURED: dict[str, Callable[[Exchange], None]] = {
    "authentication": authentication.run,
    "rights": rights.run,
    "single_rights": single_rights.run,
}
SECURED_GENERATED: dict[str, Callable[[Exchange, Random], None]] = {"acls": random_acls.run}
SECURED_SEEDS: dict[str, tuple[int, ...]] = {"acls": (1, 2, 3)}
"""As `RECORDED_SEEDS` of `tests.differences.random_sequences`."""
