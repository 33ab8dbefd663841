"""Completion of names in a shell: the broker that the command would ask is asked, for a second at the most.

If it does not answer, there is nothing to complete: a shell shows no errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

TIMEOUT_MS = 1_000


def topic_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin so; the internal ones only if asked for by their underscores."""
    return [
        name
        for name in _asked(context, parameter, incomplete, lambda admin: admin.list_topics())
        if incomplete.startswith("_") or not name.startswith("__")
    ]


def group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose names begin so."""
    return _asked(context, parameter, incomplete, lambda admin: [found["group_id"] for found in admin.list_groups()])


def transactional_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The transactional ids that begin so."""

    def read(admin: Any) -> Iterable[str]:
        return [found.transactional_id for listed in admin.list_transactions().values() for found in listed]

    return _asked(context, parameter, incomplete, read)


def _asked(
    context: click.Context, parameter: click.Parameter, incomplete: str, read: Callable[[Any], Iterable[str]]
) -> list[str]:
    from fencepost.cli.connection import client_options

    given = context.params.get(parameter.name or "")
    taken = set(given) if isinstance(given, tuple | list) else set()
    try:
        from kafka.admin import KafkaAdminClient

        with context.scope(cleanup=False):
            options = client_options(context.params["bootstrap"])
        admin = KafkaAdminClient(**{**options, "bootstrap_timeout_ms": TIMEOUT_MS, "request_timeout_ms": TIMEOUT_MS})
        try:
            return sorted({name for name in read(admin) if name.startswith(incomplete)} - taken)
        finally:
            admin.close()
    except Exception:  # noqa: BLE001  # any error message would be printed into the line that a person types
        return []
