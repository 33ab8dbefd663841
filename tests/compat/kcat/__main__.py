"""Checks a broker with kcat, librdkafka's own command line."""

from __future__ import annotations

from tests.compat.kcat import cluster, crashes, groups, records, secured, transactions
from tests.compat.python_checks import main

main(
    [
        records.produce_and_consume,
        records.formats,
        records.tombstones,
        records.files,
        records.partitions,
        records.compression,
        records.acks,
        records.idempotent,
        records.record_too_large,
        records.offsets,
        records.offsets_by_time,
        cluster.metadata_listing,
        cluster.errors,
        cluster.auto_creation,
        groups.group_resumes_at_commit,
        groups.group_with_eager_rebalances,
        groups.group_with_round_robin_rebalances,
        groups.group_with_cooperative_rebalances,
        groups.group_static_member,
        groups.group_by_regular_expression,
        transactions.transaction_commit,
        transactions.transaction_abort,
        transactions.transaction_isolation,
        transactions.transaction_fencing,
        transactions.transaction_zombie,
        groups.group_member_killed,
        crashes.crash_while_producing,
        crashes.stop_while_producing,
        crashes.crash_in_transaction,
        crashes.crash_while_consuming,
        crashes.many_clients,
    ],
    secured=secured.CHECKS,
)
