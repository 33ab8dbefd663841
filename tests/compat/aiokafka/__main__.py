"""Checks a broker with aiokafka."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.compat.aiokafka import crashes, groups, records, secured, transactions
from tests.compat.python_checks import Check, main


def in_new_loop(check: Callable[[Check], Coroutine[Any, Any, None]]) -> Callable[[Check], None]:
    @functools.wraps(check)
    def run(context: Check) -> None:
        asyncio.run(check(context))

    return run


main(
    [
        in_new_loop(check)
        for check in (
            records.produce_and_consume,
            records.compression,
            records.acks,
            records.record_too_large,
            records.offsets_by_time,
            records.fetch_from_offsets,
            records.auto_creation,
            records.idempotent,
            groups.group_resumes_at_commit,
            groups.group_with_range_assignment,
            groups.group_with_round_robin_assignment,
            groups.group_with_sticky_assignment,
            groups.group_static_member,
            groups.admin_topics,
            groups.admin_groups,
            groups.admin_delete_records,
            transactions.transaction_commit_and_abort,
            transactions.transaction_isolation,
            transactions.transaction_consume_transform_produce,
            transactions.transaction_fencing,
            transactions.transaction_zombie,
            crashes.crash_while_producing,
            crashes.stop_while_producing,
            crashes.crash_in_transaction,
            crashes.crash_while_consuming,
            crashes.many_clients,
        )
    ],
    secured=secured.CHECKS,
)
