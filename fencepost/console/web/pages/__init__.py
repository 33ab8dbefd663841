"""The pages: by address, the function that reads the data of its template."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.responses import Response

from fencepost.console.web.pages import (
    access,
    connections,
    copies,
    download,
    group_changes,
    groups,
    in_doubt,
    overview,
    producers,
    records,
    settings,
    stuck,
    tail,
    time_travel,
    topic_changes,
    topics,
    transactions,
)
from fencepost.console.web.visit import Page, Visit

CHANGING: Final = (group_changes, topic_changes)
"""Modules that have only changes: importing them declares these."""

PAGES: Final[Mapping[str, Callable[[Visit], Awaitable[Page | Response]]]] = {
    "/": overview.overview,
    "/search": overview.search,
    "/stuck": stuck.stuck_partitions,
    "/stuck/{topic}/{partition}": stuck.why_stuck,
    "/in-doubt": in_doubt.in_doubt_list,
    "/in-doubt/transaction": in_doubt.in_doubt,
    "/topics": topics.topics,
    "/topics/{topic}": topics.topic,
    "/topics/{topic}/settings": topics.topic_settings,
    "/topics/{topic}/messages": records.messages,
    "/topics/{topic}/tail": tail.tail,
    "/topics/{topic}/copy": copies.copy_form,
    "/copies": copies.copies,
    "/copies/{id}": copies.copy_progress,
    "/topics/{topic}/download": download.download,
    "/topics/{topic}/{partition}/records/{offset}": records.record,
    "/topics/{topic}/{partition}/time-travel": time_travel.time_travel,
    "/transactions": transactions.transactions,
    "/transaction": transactions.transaction,
    "/producers": producers.producers,
    "/groups": groups.groups,
    "/group": groups.group,
    "/acls": access.acls,
    "/users": access.users,
    "/quotas": access.quotas,
    "/settings": settings.settings,
    "/log-levels": settings.log_levels,
    "/connections": connections.connections,
}
