"""Checks a broker with kafka-python, release 3 or 2.3."""

from __future__ import annotations

from tests.compat.kafka_python import admin, crashes, groups, records, secured, transactions
from tests.compat.kafka_python.kafka import VERSION
from tests.compat.python_checks import main

BOTH_RELEASES = [
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
    groups.group_static_member,
    groups.group_by_pattern,
    admin.admin_topics,
    admin.admin_configs,
    admin.admin_groups,
    admin.admin_delete_records,
    admin.admin_cluster,
    transactions.transaction_commit_and_abort,
    transactions.transaction_isolation,
    transactions.transaction_consume_transform_produce,
    transactions.transaction_fencing,
    transactions.transaction_zombie,
    crashes.crash_while_producing,
    crashes.stop_while_producing,
    crashes.crash_while_consuming,
    crashes.many_clients,
]
# In release 2.3 a transactional producer does not come back to a broker that was restarted, nor to Apache Kafka.
RELEASE_3 = [
    groups.group_with_cooperative_assignment,
    admin.admin_group_offsets,
    admin.admin_transactions,
    crashes.crash_in_transaction,
]

main(BOTH_RELEASES + (RELEASE_3 if VERSION >= 3 else []), secured=secured.CHECKS)
