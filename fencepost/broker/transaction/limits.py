"""Settings of the decisions of the transaction coordinator's shards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.transaction.names import parse_expirations
from fencepost.broker.transaction.state_machine import TransactionVersion

if TYPE_CHECKING:
    from fencepost.broker.config import Settings


@dataclass(slots=True)
class TransactionLimits:
    """Settings of the transaction coordinator's decisions.

    transaction_version:            version of the coordinator's own operations: the level of the cluster feature
                                    `transaction.version`. It may change between decisions.
    transactional_id_expiration_ms: an id without an open transaction expires when unused for this time.
    expiry_interval_ms:             ids expire at multiples of it, so that one batch removes many.
    time_out_retry_ms:              pause before the abort of a timed-out transaction is retried.
    expirations_by_name:            globs with the expiration of the ids that match them.
    two_phase_warn_age_ms:          an open transaction without a time-out is named in the log at multiples of this age.
    lowest_producer_id:             first of the ids that stay with their transactional id; lower ones are replaced, see
                                    `after_restore` in `producer_ids`.
    """

    transaction_version: TransactionVersion = TransactionVersion.V2
    transactional_id_expiration_ms: int = 604_800_000
    expiry_interval_ms: int = 3_600_000
    time_out_retry_ms: int = 10_000
    expirations_by_name: Sequence[tuple[str, int]] = ()
    two_phase_warn_age_ms: int = 3_600_000
    lowest_producer_id: int = 0


def limits_of(settings: Settings) -> TransactionLimits:
    """The limits of a broker's settings."""
    return TransactionLimits(
        transaction_version=version_of(settings.fencepost_transaction_version),
        transactional_id_expiration_ms=settings.transactional_id_expiration_ms,
        expiry_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        time_out_retry_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expirations_by_name=parse_expirations(settings.fencepost_transactional_id_expiration_ms_by_name),
        two_phase_warn_age_ms=settings.fencepost_two_phase_warn_age_ms,
    )


def version_of(level: int) -> TransactionVersion:
    """Return the transaction version of a level of `transaction.version`; levels 0 and 1 are equal."""
    return TransactionVersion.V2 if level >= TransactionVersion.V2 else TransactionVersion.V1
