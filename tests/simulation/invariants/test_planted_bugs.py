"""Each invariant finds the bug that is planted for it, in a short world in which without the bug nothing is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping

from fencepost.broker.config import INTERNAL_SEGMENT_BYTES
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.simulation.clients.tenant import (
    ACLS_VERSION,
    CHANGING,
    FETCH_VERSION,
    OFFSET_COMMIT_VERSION,
    PRODUCE_VERSION,
    change_request,
    commit_request,
    fetch_request,
    marked,
    produce_request,
)
from tests.simulation.invariants import bugs
from tests.simulation.invariants.driver import OUT_0, OUT_1, TWO_PHASE, Producer, Scene, Stage, play
from tests.simulation.invariants.registry import INVARIANTS
from tests.simulation.loop import START_MS
from tests.simulation.nemesis import MONTH_MS
from tests.simulation.principals import OFFICER, TENANT, security_settings

COMPACTED = {"cleanup.policy": "compact", INTERNAL_SEGMENT_BYTES: "400", "min.cleanable.dirty.ratio": "0.01"}
SMALL_SEGMENTS = {INTERNAL_SEGMENT_BYTES: "400"}
SECURED = security_settings("stage", "broker-1")
EAGER_CLEANER = {"log.cleaner.backoff.ms": "100"}


def assert_caught(
    invariant: int,
    bug: bugs.Bug,
    scene: Scene,
    *,
    seeds: Iterable[int] = (1,),
    settings: Mapping[str, str] | None = None,
    topic_configs: Mapping[str, str] | None = None,
) -> None:
    """The invariant reports the bug in one of the worlds; without the bug no invariant reports anything in any."""
    found: set[int] = set()
    for seed in seeds:
        sound = play(scene, seed=seed, settings=settings, topic_configs=topic_configs)
        assert not sound, "\n".join(str(violation) for violation in sound)
        with bug():
            violations = play(scene, seed=seed, settings=settings, topic_configs=topic_configs)
        found |= {violation.invariant for violation in violations}
        if invariant in found:
            return
    raise AssertionError(f"invariant {invariant} did not notice; others that did: {sorted(found)}")


# Scenes


async def two_transactions(stage: Stage) -> None:
    """One aborts, one commits; both write to both partitions, and a consumer reads all of it."""
    producer = stage.producer()
    await producer.initialize()
    await producer.transact(OUT_0, OUT_1, committed=False)
    await producer.transact(OUT_0, OUT_1, committed=True)
    await stage.world.wait(0.1)
    await stage.fetch(OUT_0)
    await stage.fetch(OUT_1)


async def a_consumer_reads_while_a_transaction_is_open(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.send(OUT_0, b"open")
    await stage.fetch(OUT_0)
    await producer.end()


async def two_producers_share_a_partition(stage: Stage) -> None:
    first, second = stage.producer("first", name="first"), stage.producer("second", name="second")
    await first.initialize()
    await second.initialize()
    await first.send(OUT_0, b"early")
    await second.send(OUT_0, b"late")
    stage.invariants.observe()
    await second.end()
    stage.invariants.observe()
    await first.end()


async def many_write_at_once(stage: Stage) -> None:
    producers = [stage.producer(None, name=f"writer-{number}") for number in range(6)]
    for producer in producers:
        await producer.initialize()
    await asyncio.gather(*(producer.send(OUT_0, b"a", b"b") for producer in producers))


async def a_batch_is_sent_twice(stage: Stage) -> None:
    producer = stage.producer(None)
    await producer.initialize()
    batch = producer.batch([b"once"], 0)
    await producer.send_batch(OUT_0, batch)
    await producer.send_batch(OUT_0, batch)


async def a_batch_is_left_out(stage: Stage) -> None:
    producer = stage.producer(None)
    await producer.initialize()
    await producer.send(OUT_0, b"first")
    await producer.send_batch(OUT_0, producer.batch([b"third"], 2))


async def power_fails_after_the_acknowledgement(stage: Stage) -> None:
    producer = stage.producer(None)
    await producer.initialize()
    await producer.send(OUT_0, b"precious")
    await stage.restart(power_loss=True)


async def power_fails_after_the_commit(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.transact(OUT_0, OUT_1)
    await stage.restart(power_loss=True)


async def a_broker_is_left_alone_after_a_commit(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.transact(OUT_0, OUT_1)
    for _ in range(80):
        await stage.world.wait(0.5)
        stage.invariants.observe()


async def a_broker_is_left_alone_after_a_restart(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.transact(OUT_0, OUT_1)
    await stage.restart()
    for _ in range(80):
        await stage.world.wait(0.5)
        stage.invariants.observe()


async def a_zombie_comes_back(stage: Stage) -> None:
    """The first session's producer writes on while the second's transaction is open."""
    zombie, successor = stage.producer(version=1, name="zombie"), stage.producer(version=1, name="successor")
    await zombie.initialize()
    await zombie.transact(OUT_0)
    await successor.initialize()
    await successor.add(OUT_0)
    await successor.send(OUT_0, b"new")
    await zombie.add(OUT_0)
    await zombie.send(OUT_0, b"old")
    await successor.end()


async def a_zombie_writes_to_an_empty_partition(stage: Stage) -> None:
    """So that only the coordinator knows that it is one."""
    zombie, successor = stage.producer(version=1, name="zombie"), stage.producer(version=1, name="successor")
    await zombie.initialize()
    await successor.initialize()
    await zombie.send(OUT_0, b"old")


async def a_long_transaction_aborts(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    for number in range(4):
        await producer.send(OUT_0, b"%d" % number)
    await producer.end(committed=False)


async def a_new_session_begins(stage: Stage) -> None:
    for number in range(2):
        producer = stage.producer(name=f"session-{number}")
        await producer.initialize()
        await producer.transact(OUT_0)


async def two_ids_with_a_restart_between(stage: Stage) -> None:
    for number in range(2):
        producer = stage.producer(f"till-{number}", name=f"producer-{number}")
        await producer.initialize()
        await producer.transact(OUT_0)
        await stage.restart()


async def an_abort_and_a_restart(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.transact(OUT_0, OUT_1, committed=False)
    await stage.world.wait(0.1)
    await stage.restart()
    await stage.fetch(OUT_0)


async def clean_restart_of_two_producers(stage: Stage) -> None:
    for number in range(2):
        producer = stage.producer(None, name=f"producer-{number}")
        await producer.initialize()
        await producer.send(OUT_0, b"value")
    await stage.broker.stop()
    await stage.broker.start()


async def the_partition_is_never_added(stage: Stage) -> None:
    producer = stage.producer(version=1)
    await producer.initialize()
    await producer.send(OUT_0, b"hanging")


async def a_plain_commit_overtakes_a_transactional_one(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    await producer.send_offset(OUT_0, 5)
    await stage.commit_offset(OUT_0, 9)
    await stage.fetch_offset(OUT_0)
    await producer.end()
    await stage.world.wait(0.1)
    await stage.fetch_offset(OUT_0)


async def a_producer_falls_silent(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize(timeout_ms=1000)
    await producer.send(OUT_0, b"forgotten")
    await stage.world.wait(30)


async def a_late_repeat_of_a_batch(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize()
    batch = producer.batch([b"value"], 0)
    await producer.send_batch(OUT_0, batch)
    await producer.end()
    await stage.world.wait(0.1)
    await producer.send_batch(OUT_0, batch)


async def keys_are_overwritten(stage: Stage) -> None:
    """Enough of it, committed and aborted, to make the cleaner work on sealed segments."""
    producer = stage.producer()
    await producer.initialize()
    chance = random.Random(1)
    for number in range(30):
        await producer.send(OUT_0, b"%d" % number * 20, key=b"key-%d" % chance.randint(0, 9))
        await producer.end(committed=number % 3 != 0)
    await stage.world.wait(20)
    await stage.fetch(OUT_0)


async def a_right_is_taken_while_its_client_goes_on(stage: Stage) -> None:
    """The same request, before the right is given, with it, and after it was taken."""
    officer, client = stage.new_client(OFFICER), stage.new_client(TENANT)
    stage.world.secured.add(TENANT)
    topic = CreateTopicsRequest(topics=[CreatableTopic(TENANT, 1, 1)], timeout_ms=1_000)
    await officer.send(stage.broker.address, topic, 5)
    number = 0
    for granted in (None, True, False, True, False):
        if granted is not None:
            for right in CHANGING:
                await officer.send(stage.broker.address, change_request(right, granted=granted), ACLS_VERSION)
        for _ in range(4):
            number += 1
            text = marked(f"{TENANT}:{number}")
            await client.send(stage.broker.address, produce_request(TENANT, text, START_MS), PRODUCE_VERSION)
            await client.send(stage.broker.address, fetch_request(TENANT), FETCH_VERSION)
            commit = commit_request(TENANT, TENANT, number, text)
            await client.send(stage.broker.address, commit, OFFSET_COMMIT_VERSION)
        stage.invariants.observe()


async def a_session_keeps_and_commits(stage: Stage) -> None:
    """Then the late EndTxn of that session arrives once more, in its next transaction."""
    writer, keeper = stage.producer(name="writer"), stage.producer(name="keeper")
    await writer.initialize(two_phase=True)
    await writer.send(OUT_0, b"prepared")
    await stage.world.wait(0.1)
    await keeper.initialize(keeping=True, timeout_ms=1_000)
    late = Producer(stage, "till", 2, "late")
    late.producer_id, late.producer_epoch = keeper.producer_id, keeper.producer_epoch
    await keeper.end()
    await keeper.send(OUT_0, b"next")
    await late.end()
    await keeper.end()


async def the_writer_of_a_kept_transaction_comes_back(stage: Stage) -> None:
    writer, keeper = stage.producer(name="writer"), stage.producer(name="keeper")
    await writer.initialize(two_phase=True)
    await writer.send(OUT_0, b"prepared")
    await keeper.initialize(keeping=True)
    await writer.end()
    await keeper.end(committed=False)


async def the_newest_session_asks_twice_for_the_end(stage: Stage) -> None:
    """In version 1, where the second request meets the prepared transaction. It is the second session that keeps: the
    first has the epoch of the markers.
    """
    writer, keeper = stage.producer(version=1, name="writer"), stage.producer(version=1, name="keeper")
    await writer.initialize(two_phase=True)
    await writer.add(OUT_0)
    await writer.send(OUT_0, b"prepared")
    await stage.producer(version=1, name="dead").initialize(keeping=True)
    await keeper.initialize(keeping=True)
    again = Producer(stage, "till", 1, "again")
    again.producer_id, again.producer_epoch = keeper.producer_id, keeper.producer_epoch

    async def ask_again() -> None:
        for _ in range(20):
            await again.end()

    await asyncio.gather(keeper.end(), ask_again())


async def the_other_outcome_is_asked_for(stage: Stage) -> None:
    producer, late = stage.producer(), stage.producer(name="late")
    await producer.initialize()
    late.producer_id, late.producer_epoch = producer.producer_id, producer.producer_epoch
    await producer.transact(OUT_0)
    await stage.world.wait(0.1)
    await late.end(committed=False)


async def a_zombie_expects_its_old_pair(stage: Stage) -> None:
    zombie, successor = stage.producer(name="zombie"), stage.producer(name="successor")
    await zombie.initialize()
    await successor.initialize()
    await successor.send(OUT_0, b"open")
    await zombie.initialize(expecting=True)
    await successor.end()


async def a_month_passes_over_what_is_prepared(stage: Stage) -> None:
    producer = stage.producer()
    await producer.initialize(two_phase=True)
    await producer.send(OUT_0, b"prepared")
    stage.broker.clock.skew_ms += MONTH_MS
    await stage.restart()
    await stage.world.wait(20)
    await producer.end()


# Tests


def test_every_invariant_has_its_number() -> None:
    assert [invariant.number for invariant in INVARIANTS] == list(range(1, 51))
    assert all(f"{invariant.number}. " in (invariant.__doc__ or "") for invariant in INVARIANTS)


def test_1_a_fetch_reply_does_not_list_aborted_transactions() -> None:
    assert_caught(1, bugs.aborted_transactions_are_not_listed, two_transactions)


def test_1_a_consumer_gets_records_of_an_open_transaction() -> None:
    assert_caught(
        1, bugs.stable_offset_ignores_open_transactions, a_consumer_reads_while_a_transaction_is_open, seeds=range(5)
    )


def test_2_a_commit_is_acknowledged_before_it_is_durable_and_power_fails() -> None:
    assert_caught(2, bugs.end_is_answered_before_the_disk_has_it, power_fails_after_the_commit, seeds=range(20))


def test_2_a_commit_never_reaches_one_partition() -> None:
    assert_caught(2, bugs.one_partition_gets_no_marker, two_transactions)


def test_3_one_partition_gets_the_opposite_marker() -> None:
    assert_caught(3, bugs.one_partition_gets_the_opposite_marker, two_transactions)


def test_4_a_retry_is_appended_again() -> None:
    assert_caught(4, bugs.retries_are_not_recognised, a_batch_is_sent_twice)


def test_4_a_record_is_acknowledged_before_it_is_durable_and_power_fails() -> None:
    assert_caught(
        4,
        bugs.produce_is_answered_before_the_disk_has_it,
        power_fails_after_the_acknowledgement,
        seeds=range(20),
    )


def test_5_a_gap_between_sequences_is_accepted() -> None:
    assert_caught(5, bugs.sequences_are_not_checked, a_batch_is_left_out)


def test_6_a_partition_accepts_an_older_epoch() -> None:
    assert_caught(6, bugs.partitions_do_not_fence, a_zombie_comes_back)


def test_7_the_last_stable_offset_runs_ahead_of_the_high_watermark() -> None:
    assert_caught(7, bugs.stable_offset_does_not_wait_for_the_disk, many_write_at_once)


def test_8_the_last_stable_offset_ignores_the_earliest_open_transaction() -> None:
    assert_caught(8, bugs.stable_offset_ignores_the_earliest_of_two_transactions, two_producers_share_a_partition)


def test_9_a_producer_id_is_handed_out_again_after_a_crash() -> None:
    assert_caught(9, bugs.producer_ids_are_handed_out_again_after_a_restart, two_ids_with_a_restart_between)


def test_9_a_new_session_is_given_the_epoch_of_the_old() -> None:
    assert_caught(9, bugs.a_new_session_gets_the_epoch_of_the_old, a_new_session_begins)


def test_10_the_coordinator_lets_a_fenced_producer_join_partitions() -> None:
    assert_caught(10, bugs.the_coordinator_does_not_fence, a_zombie_comes_back)


def test_10_a_partition_takes_a_batch_of_a_fenced_producer() -> None:
    assert_caught(10, bugs.partitions_do_not_fence, a_zombie_comes_back)


def test_11_a_commit_completes_as_an_abort() -> None:
    assert_caught(11, bugs.a_commit_completes_as_an_abort, two_transactions)


def test_12_a_transaction_is_complete_before_every_partition_has_its_marker() -> None:
    assert_caught(12, bugs.one_partition_gets_no_marker, two_transactions)


def test_13_a_transaction_begins_while_the_one_before_is_open_in_a_partition() -> None:
    assert_caught(13, bugs.one_partition_gets_no_marker, two_transactions)


def test_14_a_batch_opens_a_transaction_of_which_the_coordinator_does_not_know() -> None:
    assert_caught(14, bugs.transactions_are_not_verified, the_partition_is_never_added)


def test_15_the_rebuilt_index_of_aborted_transactions_is_empty() -> None:
    assert_caught(15, bugs.rebuilt_indexes_of_aborted_transactions_are_empty, an_abort_and_a_restart)


def test_16_a_snapshot_loses_a_producer() -> None:
    assert_caught(16, bugs.snapshots_lose_a_producer, clean_restart_of_two_producers)


def test_16_a_replay_forgets_the_epoch_of_the_coordinator() -> None:
    assert_caught(16, bugs.replay_forgets_coordinator_epochs, an_abort_and_a_restart)


def test_17_a_restarted_coordinator_has_forgotten_transactions() -> None:
    assert_caught(17, bugs.a_restart_forgets_transactions, an_abort_and_a_restart)


def test_18_a_transactional_commit_wins_over_a_later_plain_one() -> None:
    assert_caught(18, bugs.pending_offsets_always_win, a_plain_commit_overtakes_a_transactional_one)


def test_18_a_pending_offset_is_given_as_stable() -> None:
    assert_caught(18, bugs.pending_offsets_count_as_stable, a_plain_commit_overtakes_a_transactional_one)


def test_19_a_prepared_transaction_never_becomes_complete() -> None:
    assert_caught(19, bugs.prepared_transactions_are_left_alone, two_transactions)


def test_19_a_silent_producers_transaction_never_times_out() -> None:
    assert_caught(19, bugs.transactions_do_not_time_out, a_producer_falls_silent)


def test_20_a_late_repeat_of_a_batch_begins_the_transaction_again() -> None:
    assert_caught(20, bugs.older_epochs_are_taken, a_late_repeat_of_a_batch)


def test_20_two_transactions_share_an_epoch() -> None:
    assert_caught(20, bugs.the_end_of_a_transaction_keeps_its_epoch, two_transactions)


def test_21_a_fetch_from_the_middle_of_an_aborted_transaction_delivers_its_rest() -> None:
    assert_caught(21, bugs.aborted_transactions_that_began_before_the_fetch_are_not_listed, a_long_transaction_aborts)


def test_22_the_cleaner_drops_a_marker_before_its_data() -> None:
    assert_caught(
        22,
        bugs.the_cleaner_drops_markers_at_once,
        keys_are_overwritten,
        settings=EAGER_CLEANER,
        topic_configs=COMPACTED,
    )


def test_22_the_cleaner_keeps_the_wrong_record_of_a_key() -> None:
    assert_caught(
        22,
        bugs.the_cleaner_keeps_the_oldest_record_of_a_key,
        keys_are_overwritten,
        settings=EAGER_CLEANER,
        topic_configs=COMPACTED,
    )


def test_23_a_produce_is_answered_with_what_only_coordinators_say() -> None:
    assert_caught(23, bugs.produce_says_what_the_coordinator_said, a_zombie_writes_to_an_empty_partition)


def test_24_a_coordinator_loads_for_ever() -> None:
    assert_caught(24, bugs.a_load_ends_in_silence, a_broker_is_left_alone_after_a_restart)


def test_24_records_never_become_durable() -> None:
    assert_caught(24, bugs.syncs_end_in_silence, a_broker_is_left_alone_after_a_commit)


def test_25_a_cached_request_is_served_after_its_right_was_taken() -> None:
    assert_caught(
        25, bugs.verdicts_outlive_a_change_of_rights, a_right_is_taken_while_its_client_goes_on, settings=SECURED
    )


def test_25_a_refused_request_is_carried_out() -> None:
    assert_caught(
        25, bugs.a_refused_request_is_carried_out, a_right_is_taken_while_its_client_goes_on, settings=SECURED
    )


def test_25_a_right_that_is_given_changes_nothing() -> None:
    assert_caught(
        25, bugs.denials_outlive_a_change_of_rights, a_right_is_taken_while_its_client_goes_on, settings=SECURED
    )


def test_26_a_session_that_keeps_gets_the_pair_of_the_one_before() -> None:
    assert_caught(
        26, bugs.who_keeps_gets_the_pair_of_the_session_before, a_session_keeps_and_commits, settings=TWO_PHASE
    )


def test_26_a_session_writes_on_with_the_pair_that_ended_what_it_kept() -> None:
    assert_caught(
        26, bugs.the_end_of_a_kept_transaction_raises_no_epoch, a_session_keeps_and_commits, settings=TWO_PHASE
    )


def test_27_a_kept_transaction_begins_anew() -> None:
    assert_caught(27, bugs.a_kept_transaction_begins_anew, a_session_keeps_and_commits, settings=TWO_PHASE)


def test_27_a_session_that_keeps_shortens_the_time() -> None:
    assert_caught(27, bugs.who_keeps_sets_the_time_out, a_session_keeps_and_commits, settings=TWO_PHASE)


def test_27_a_kept_transaction_is_ended_by_the_pair_that_wrote_it() -> None:
    assert_caught(
        27,
        bugs.who_wrote_a_kept_transaction_may_end_it,
        the_writer_of_a_kept_transaction_comes_back,
        settings=TWO_PHASE,
    )


def test_28_the_markers_of_a_kept_transaction_fence_nobody() -> None:
    assert_caught(
        28,
        bugs.markers_of_kept_transactions_have_the_epoch_of_the_data,
        a_session_keeps_and_commits,
        settings=TWO_PHASE,
    )


def test_29_a_month_ends_what_is_prepared() -> None:
    assert_caught(29, bugs.a_month_ends_a_two_phase_commit, a_month_passes_over_what_is_prepared, settings=TWO_PHASE)


def test_30_the_newest_session_is_fenced_while_its_transaction_ends() -> None:
    assert_caught(
        30,
        bugs.prepared_transactions_are_fenced_by_the_pair_that_wrote_them,
        the_newest_session_asks_twice_for_the_end,
        settings=TWO_PHASE,
        seeds=range(20),
    )


def test_30_both_outcomes_are_acknowledged() -> None:
    assert_caught(30, bugs.a_repeated_end_is_always_acknowledged, the_other_outcome_is_asked_for)


def test_31_a_zombie_aborts_the_transaction_of_its_successor() -> None:
    assert_caught(31, bugs.expected_pairs_are_compared_by_their_ids_alone, a_zombie_expects_its_old_pair)
