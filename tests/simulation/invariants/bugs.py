"""Bugs to plant: each puts one mistake into the broker for as long as it is open. Checkers must find them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isawaitable
from typing import Any
from unittest.mock import patch

from fencepost.broker.coordination.runtime import CoordinatorRuntime, Decision
from fencepost.broker.group.offsets.committed import OffsetStore
from fencepost.broker.group.offsets.decisions import OffsetDecisions
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append import appending
from fencepost.broker.log.compaction.compaction import CleanedTransactions, RetentionRules
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.files import partition_files, producer_snapshot
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers import producer_replay
from fencepost.broker.log.producers.producer_state import ProducerEntry, ProducerState
from fencepost.broker.log.segment.transaction_index import TransactionIndex
from fencepost.broker.log.segment.transaction_index_file import TransactionIndexFile
from fencepost.broker.produce import produce_verification
from fencepost.broker.produce.produce_append import ProduceAppend
from fencepost.broker.rights.rights_gate import RestrictedRequest
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.transaction import metadata, shard
from fencepost.broker.transaction.completion import Completion
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.producer_ids import ProducerIdBlock, ProducerIds
from fencepost.broker.transaction.shard import TransactionShard
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    KEPT,
    TableAction,
    TransactionCell,
    TransactionEvent,
    TransactionState,
    TransactionVersion,
    lookup,
)
from fencepost.check_back.records import Journal, read_journal
from fencepost.check_back.service import CheckBack
from fencepost.protocol.errors import ErrorCode

Bug = Callable[[], AbstractContextManager[Any]]
OUT_1 = TopicPartition("out", 1)
LAST_OF_THE_FIRST_BLOCK = 999


def no_bug() -> AbstractContextManager[Any]:
    return nullcontext()


# Partitions


def stable_offset_ignores_open_transactions() -> AbstractContextManager[Any]:
    return patch.object(
        ProducerState, "last_stable_offset", lambda self, high_watermark, log_start_offset: high_watermark
    )


def stable_offset_ignores_the_earliest_of_two_transactions() -> AbstractContextManager[Any]:
    def first_unstable_offset(state: ProducerState, high_watermark: int) -> int | None:
        return next(itertools.islice(state._open_transactions, 1, None), None)

    return patch.object(ProducerState, "first_unstable_offset", first_unstable_offset)


def stable_offset_does_not_wait_for_the_disk() -> AbstractContextManager[Any]:
    commit = appending._commit

    def commit_as_stable(partition_log: Any, *about: Any, **options: Any) -> bool:
        is_done = commit(partition_log, *about, **options)
        partition_log.last_stable_offset = partition_log.producers.last_stable_offset(partition_log.log_end_offset, 0)
        return is_done

    return patch.object(appending, "_commit", commit_as_stable)


def retries_are_not_recognised() -> AbstractContextManager[Any]:
    return _together(
        patch.object(ProducerEntry, "find_duplicate", lambda self, header: None),
        patch.object(ProducerState, "_is_in_sequence", lambda self, *about: True),
    )


def sequences_are_not_checked() -> AbstractContextManager[Any]:
    return patch.object(ProducerState, "_is_in_sequence", lambda self, *about: True)


def partitions_do_not_fence() -> AbstractContextManager[Any]:
    """Neither epochs nor open transactions are looked at before an append."""
    return _together(
        patch.object(ProducerState, "check_data_batch", lambda self, header, **options: ErrorCode.NONE),
        patch.object(ProducerState, "begin_verification", lambda self, *about, **options: None),
    )


def older_epochs_are_taken() -> AbstractContextManager[Any]:
    """New transactions are verified, but writes with an older epoch are accepted."""
    original = ProducerState.begin_verification

    def begin_verification(self: ProducerState, *about: Any, **options: Any) -> Any:
        guard = original(self, *about, **options)
        return None if isinstance(guard, ErrorCode) else guard

    return _together(
        patch.object(ProducerState, "check_data_batch", lambda self, header, **options: ErrorCode.NONE),
        patch.object(ProducerState, "begin_verification", begin_verification),
    )


def transactions_are_not_verified() -> AbstractContextManager[Any]:
    original = ProducerState.check_data_batch

    def check_data_batch(self: ProducerState, header: Any, **options: Any) -> Any:
        return original(self, header, **{**options, "verification_is_enabled": False})

    return _together(
        patch.object(ProducerState, "check_data_batch", check_data_batch),
        patch.object(ProducerState, "begin_verification", lambda self, *about, **options: None),
    )


def produce_is_answered_before_the_disk_has_it() -> AbstractContextManager[Any]:
    return patch.object(ProduceAppend, "finish", lambda self: eager.Finished(self.answer()))


# What lies beside the log


def aborted_transactions_are_not_listed() -> AbstractContextManager[Any]:
    return patch.object(TransactionIndex, "collect", lambda self, fetch_offset, upper_offset, into: True)


def aborted_transactions_that_began_before_the_fetch_are_not_listed() -> AbstractContextManager[Any]:
    original = TransactionIndex.collect

    def collect(self: TransactionIndex, fetch_offset: int, upper_offset: int, into: list[Any]) -> bool:
        found: list[Any] = []
        is_all = original(self, fetch_offset, upper_offset, found)
        into.extend(entry for entry in found if entry.first_offset >= fetch_offset)
        return is_all

    return patch.object(TransactionIndex, "collect", collect)


def rebuilt_indexes_of_aborted_transactions_are_empty() -> AbstractContextManager[Any]:
    original = TransactionIndexFile.replace
    return patch.object(TransactionIndexFile, "replace", lambda self, index: original(self, TransactionIndex()))


def snapshots_lose_a_producer() -> AbstractContextManager[Any]:
    original = producer_snapshot.encode_snapshot
    return patch.object(partition_files, "encode_snapshot", lambda producers: original(producers[1:]))


def replay_forgets_coordinator_epochs() -> AbstractContextManager[Any]:
    original = ProducerState.apply_marker

    def replay_batch(producers: ProducerState, *about: Any, **options: Any) -> Any:
        def apply_marker(**marker: Any) -> Any:
            return original(producers, **{**marker, "coordinator_epoch": -1})

        with patch.object(ProducerState, "apply_marker", lambda self, **marker: apply_marker(**marker)):
            return replayed(producers, *about, **options)

    replayed = producer_replay.replay_batch
    return _together(
        patch.object(producer_replay, "replay_batch", replay_batch),
        patch("fencepost.broker.log.recovery.recovery.replay_batch", replay_batch),
    )


def the_cleaner_drops_markers_at_once() -> AbstractContextManager[Any]:
    return _together(
        patch.object(CleanedTransactions, "is_superfluous_marker", lambda self, batch, kept: True),
        patch.object(RetentionRules, "_is_past_horizon", lambda self, header: header.is_control),
        patch.object(RetentionRules, "_is_last_of_producer", lambda self, header: False),
    )


def the_cleaner_keeps_the_oldest_record_of_a_key() -> AbstractContextManager[Any]:
    return patch(
        "fencepost.broker.log.compaction.compaction.OffsetMap.has_newer",
        lambda self, key, offset: offset > self._offsets.part_of(key)[key] - 1,
    )


# The transaction coordinator


def end_is_answered_before_the_disk_has_it() -> AbstractContextManager[Any]:
    async def durable(*about: object) -> None:
        pass

    return patch.object(CoordinatorRuntime, "_durable", durable)


def one_partition_gets_the_opposite_marker() -> AbstractContextManager[Any]:
    original = PartitionLog.append_marker

    def append_marker(
        partition_log: PartitionLog, producer_id: int, producer_epoch: int, committed: bool, *about: int
    ) -> ErrorCode:
        is_opposite = partition_log.topic_partition == OUT_1
        return original(partition_log, producer_id, producer_epoch, committed is not is_opposite, *about)

    return patch.object(PartitionLog, "append_marker", append_marker)


def one_partition_gets_no_marker() -> AbstractContextManager[Any]:
    original = PartitionLog.append_marker

    def append_marker(partition_log: PartitionLog, *about: Any) -> ErrorCode:
        if partition_log.topic_partition == OUT_1:
            return ErrorCode.NONE
        return original(partition_log, *about)

    return patch.object(PartitionLog, "append_marker", append_marker)


def producer_ids_are_handed_out_again_after_a_restart() -> AbstractContextManager[Any]:
    async def reserve_block(self: ProducerIds) -> ProducerIdBlock:
        return ProducerIdBlock(0, LAST_OF_THE_FIRST_BLOCK)

    return patch.object(ProducerIds, "_reserve_block", reserve_block)


def a_new_session_gets_the_epoch_of_the_old() -> AbstractContextManager[Any]:
    return patch.object(TransactionShard, "_successor", lambda self, producer: producer)


def the_coordinator_does_not_fence() -> AbstractContextManager[Any]:
    return patch.object(shard, "fence", lambda metadata, producer: ErrorCode.NONE)


def a_commit_completes_as_an_abort() -> AbstractContextManager[Any]:
    original = TransactionMetadata.completed

    def completed(self: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
        return original(self, now_ms=now_ms)._replace(state=COMPLETE_ABORT)

    return patch.object(TransactionMetadata, "completed", completed)


def a_restart_forgets_transactions() -> AbstractContextManager[Any]:
    def loaded(self: TransactionShard, now_ms: int) -> None:
        self.transactions.clear()

    return patch.object(TransactionShard, "loaded", loaded)


def prepared_transactions_are_left_alone() -> AbstractContextManager[Any]:
    async def complete(self: Completion) -> None:
        await asyncio.get_running_loop().create_future()

    return patch.object(Completion, "_complete", complete)


def transactions_do_not_time_out() -> AbstractContextManager[Any]:
    def look_up(version: TransactionVersion, event: TransactionEvent, state: TransactionState) -> TransactionCell:
        return TableAction.IGNORE if event is TransactionEvent.TIME_OUT else lookup(version, event, state)

    return patch.object(shard, "lookup", look_up)


def the_end_of_a_transaction_keeps_its_epoch() -> AbstractContextManager[Any]:
    """As in version 1, which version 2 must not."""
    original = TransactionMetadata._prepared_with_next_epoch

    def prepared(self: TransactionMetadata, *about: Any, **options: Any) -> TransactionMetadata:
        return original(self, *about, **options)._replace(producer_epoch=self.producer_epoch)

    return _together(
        patch.object(TransactionMetadata, "_prepared_with_next_epoch", prepared),
        patch.object(ProducerState, "check_marker", lambda self, *marker: ErrorCode.NONE),
    )


# Transactions of two-phase commits


def who_keeps_gets_the_pair_of_the_session_before() -> AbstractContextManager[Any]:
    original = TransactionShard._keep

    def keep(self: TransactionShard, *about: Any) -> Any:
        with patch.object(TransactionShard, "_successor", lambda self, producer: producer):
            return original(self, *about)

    return patch.object(TransactionShard, "_keep", keep)


def the_end_of_a_kept_transaction_raises_no_epoch() -> AbstractContextManager[Any]:
    """A late EndTxn of the session would end its next transaction."""
    original = TransactionMetadata.kept_prepared

    def prepared(self: TransactionMetadata, **options: Any) -> TransactionMetadata:
        return original(self, **{**options, "successor": self.client})

    return patch.object(TransactionMetadata, "kept_prepared", prepared)


def markers_of_kept_transactions_have_the_epoch_of_the_data() -> AbstractContextManager[Any]:
    original = TransactionMetadata._kept_ended

    def ended(self: TransactionMetadata, *about: Any, **options: Any) -> TransactionMetadata:
        return original(self, *about, **options)._replace(producer_epoch=self.producer_epoch)

    return _together(
        patch.object(TransactionMetadata, "_kept_ended", ended),
        patch.object(ProducerState, "check_marker", lambda self, *marker: ErrorCode.NONE),
    )


def a_kept_transaction_begins_anew() -> AbstractContextManager[Any]:
    original = TransactionMetadata.kept

    def kept(self: TransactionMetadata, **options: Any) -> TransactionMetadata:
        return original(self, **options)._replace(start_ms=options["now_ms"])

    return patch.object(TransactionMetadata, "kept", kept)


def who_keeps_sets_the_time_out() -> AbstractContextManager[Any]:
    """A session that knows nothing of the two-phase commit has what was prepared aborted."""
    original = TransactionMetadata.kept

    def kept(self: TransactionMetadata, **options: Any) -> TransactionMetadata:
        return original(self, **options)._replace(timeout_ms=options["timeout_ms"])

    return patch.object(TransactionMetadata, "kept", kept)


def who_wrote_a_kept_transaction_may_end_it() -> AbstractContextManager[Any]:
    original = metadata.fence

    def fence(about: TransactionMetadata, producer: Producer) -> ErrorCode:
        is_writer = about.state is KEPT and producer == about.producer
        return ErrorCode.NONE if is_writer else original(about, producer)

    return patch.object(metadata, "fence", fence)


def prepared_transactions_are_fenced_by_the_pair_that_wrote_them() -> AbstractContextManager[Any]:
    original = metadata.fence

    def fence(about: TransactionMetadata, producer: Producer) -> ErrorCode:
        if about.state.is_prepared:
            return ErrorCode.NONE if producer == about.producer else ErrorCode.PRODUCER_FENCED
        return original(about, producer)

    return patch.object(metadata, "fence", fence)


def expected_pairs_are_compared_by_their_ids_alone() -> AbstractContextManager[Any]:
    return patch.object(
        shard, "_is_owner", lambda about, expected: expected.producer_id in (about.producer_id, about.next_producer_id)
    )


def a_month_ends_a_two_phase_commit() -> AbstractContextManager[Any]:
    """The time-out that stands for none is believed."""
    return patch.object(shard, "TWO_PHASE_COMMIT_TIMEOUT_MS", -1)


def a_repeated_end_is_always_acknowledged() -> AbstractContextManager[Any]:
    def look_up(version: TransactionVersion, event: TransactionEvent, state: TransactionState) -> TransactionCell:
        cell = lookup(version, event, state)
        is_repeat = event in (TransactionEvent.RETRY_COMMIT, TransactionEvent.RETRY_ABORT)
        return TableAction.ACKNOWLEDGE if is_repeat and cell is ErrorCode.INVALID_TXN_STATE else cell

    return patch.object(shard, "lookup", look_up)


# Groups and replies


def pending_offsets_always_win() -> AbstractContextManager[Any]:
    original = OffsetStore.end_transaction

    def end_transaction(self: OffsetStore, producer_id: int, *, committed: bool) -> None:
        pending = dict(self._pending.get(producer_id, {}))
        original(self, producer_id, committed=committed)
        if committed:
            for (group_id, topic_partition), value in pending.items():
                self.commit(group_id, topic_partition, value)

    return patch.object(OffsetStore, "end_transaction", end_transaction)


def pending_offsets_count_as_stable() -> AbstractContextManager[Any]:
    return patch.object(OffsetStore, "has_pending", lambda self, group_id: False)


def produce_says_what_the_coordinator_said() -> AbstractContextManager[Any]:
    return patch.object(produce_verification, "_PRODUCE_ERRORS", {})


@contextmanager
def _together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    first, *others = patches
    with first:
        if others:
            with _together(*others):
                yield
        else:
            yield


# Rights


def verdicts_outlive_a_change_of_rights() -> AbstractContextManager[Any]:
    """Those that are kept for requests which repeat."""
    original = Authorizer.change

    def change(authorizer: Authorizer, *about: Any) -> None:
        original(authorizer, *about)
        authorizer.epoch = 1

    return patch.object(Authorizer, "change", change)


def a_refused_request_is_carried_out() -> AbstractContextManager[Any]:
    original, running = RestrictedRequest.answer, []

    def answer(restricted: RestrictedRequest, context: Any) -> Any:
        started = restricted._api.handler(context, restricted._request)
        if isawaitable(started):
            running.append(asyncio.ensure_future(started))
        return original(restricted, context)

    return patch.object(RestrictedRequest, "answer", answer)


def denials_outlive_a_change_of_rights() -> AbstractContextManager[Any]:
    original = Authorizer.change

    def change(authorizer: Authorizer, *about: Any) -> None:
        rights = authorizer._rights
        original(authorizer, *about)
        authorizer._rights = rights

    return patch.object(Authorizer, "change", change)


# What nobody foresaw


def a_load_ends_in_silence() -> AbstractContextManager[Any]:
    """The load of a partition with records fails without a report."""
    original = CoordinatorRuntime._load

    async def load(runtime: Any, partition: Any, pause_s: float) -> None:
        if not partition.log.log_end_offset:
            await original(runtime, partition, pause_s)

    return patch.object(CoordinatorRuntime, "_load", load)


def syncs_end_in_silence() -> AbstractContextManager[Any]:
    """Those of what nobody waits for; it is never durable."""
    return patch.object(Flusher, "_end_pause", lambda self: None)


# Topics that are created again


def offsets_of_a_deleted_topic_stay() -> AbstractContextManager[Any]:
    """They are neither removed nor told from those of the next topic with the name."""

    def keep(self: OffsetDecisions, is_deleted: object, search: object) -> Decision[None]:
        return Decision(None)

    return _together(
        patch.object(OffsetDecisions, "drop", keep),
        patch.object(OffsetDecisions, "_is_of_earlier_topic", lambda *_: False),
    )


# What others wrote


def one_odd_record_stops_the_check_back() -> AbstractContextManager[Any]:
    def read(self: CheckBack, records: Mapping[str, bytes | None]) -> Journal:
        journal = read_journal(records)
        if journal.left_out_count:
            raise TypeError(journal.left_out[0])
        return journal

    return patch.object(CheckBack, "_read", read)
