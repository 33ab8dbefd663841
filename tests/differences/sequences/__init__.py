"""The sequences by theme; one module each, whose `run` asks everything on one `Exchange`."""

from collections.abc import Callable

from tests.differences.exchange import Exchange
from tests.differences.sequences import (
    admin,
    classic_groups,
    configs,
    consumer_groups,
    fetch,
    idempotence,
    list_offsets,
    newer_versions,
    offsets,
    operations,
    produce,
    protocol,
    quotas,
    share_groups,
    streams_groups,
    topics,
    transactions,
)

SEQUENCES: dict[str, Callable[[Exchange], None]] = {
    "protocol": protocol.run,
    "topics": topics.run,
    "produce": produce.run,
    "fetch": fetch.run,
    "list_offsets": list_offsets.run,
    "idempotence": idempotence.run,
    "transactions": transactions.run,
    "classic_groups": classic_groups.run,
    "consumer_groups": consumer_groups.run,
    "offsets": offsets.run,
    "configs": configs.run,
    "admin": admin.run,
    "operations": operations.run,
    "quotas": quotas.run,
    "share_groups": share_groups.run,
    "streams_groups": streams_groups.run,
    "newer_versions": newer_versions.run,
}
