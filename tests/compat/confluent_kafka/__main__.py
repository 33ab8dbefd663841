"""Checks a broker with confluent-kafka, and with it librdkafka."""

from __future__ import annotations

from tests.compat.confluent_kafka import admin, crashes, groups, records, secured, transactions
from tests.compat.python_checks import main

main(
    [
        records.produce_and_consume,
        records.compression,
        records.acks,
        records.record_too_large,
        records.offsets_by_time,
        records.fetch_from_offsets,
        records.auto_creation,
        records.idempotent,
        groups.group_resumes_at_commit,
        groups.group_with_eager_rebalances,
        groups.group_with_cooperative_rebalances,
        groups.group_of_the_consumer_protocol,
        groups.group_static_member,
        groups.group_by_regular_expression,
        admin.admin_topics,
        admin.admin_configs,
        admin.admin_groups,
        admin.admin_offsets_and_records,
        admin.admin_cluster,
        admin.admin_access,
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
    ],
    secured=secured.CHECKS,
)
