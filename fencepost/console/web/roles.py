"""The role that each change needs. A change is declared with its row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.console.roles import Role

NEEDED: Final[Mapping[str, Role]] = {
    "abort-hanging": Role.OPERATOR,
    "abort-transaction": Role.OPERATOR,
    "add-acl": Role.ADMIN,
    "add-partitions": Role.OPERATOR,
    "alter-broker-setting": Role.ADMIN,
    "alter-topic-setting": Role.ADMIN,
    "ask-again": Role.OPERATOR,
    "copy-records": Role.OPERATOR,
    "create-topic": Role.OPERATOR,
    "decide-in-doubt": Role.OPERATOR,
    "delete-group": Role.OPERATOR,
    "delete-records": Role.OPERATOR,
    "delete-topic": Role.ADMIN,
    "finish-batch": Role.OPERATOR,
    "produce-record": Role.OPERATOR,
    "remove-acl": Role.ADMIN,
    "remove-user": Role.ADMIN,
    "reset-offsets": Role.OPERATOR,
    "copy-offsets": Role.OPERATOR,
    "stop-copy": Role.OPERATOR,
    "set-log-level": Role.ADMIN,
    "set-password": Role.ADMIN,
    "set-quota": Role.ADMIN,
}
"""By name of the change. A viewer makes none."""


def needed_role(change: str) -> Role:
    """The role that a change needs: the highest for one without a row."""
    return NEEDED.get(change, Role.ADMIN)
