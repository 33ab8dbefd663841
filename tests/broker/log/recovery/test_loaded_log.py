"""What a refused log says of itself: why it is offline, and what giving up its records costs."""

from __future__ import annotations

from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.recovery.loaded_log import LoadedLog, RecoveryRefusal
from tests.support.log_world import LogWorld

REFUSAL = RecoveryRefusal("00.log", "00.log is damaged", 70, 5, 9, 12, 300)


async def test_a_refused_log_is_offline_for_what_is_wrong_and_a_sound_one_is_not(world: LogWorld) -> None:
    segments = world.create().segments
    sound = LoadedLog(segments, ProducerState(), LeaderEpochs(), 0, (), (), 5, refusal=None)
    assert sound.offline_reason is None
    assert sound._replace(refusal=REFUSAL).offline_reason == "00.log is damaged"


def test_giving_up_damaged_records_costs_all_from_the_bad_place_on_and_their_bytes_are_kept() -> None:
    assert REFUSAL.cost == (
        "the offsets from 5 on (up to 11 they were on the disk), 300 bytes, which are kept beside the log"
    )


def test_giving_up_a_missing_file_costs_no_more_than_what_it_held() -> None:
    assert REFUSAL._replace(is_missing=True).cost == "the offsets 5 to 11, which are not there any more"
