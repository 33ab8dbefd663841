"""Members of one group of the consumer protocol that come, fall behind, are replaced and leave, while topics come, grow
and go; among them members of the classic protocol, which convert the group when they are the only ones left.

Kafka's uniform assignor takes topics in the order of the hashes of their random ids: so groups that ask for it do have
one topic, and all others ask for ranges. What Kafka does in its own time is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from tests.differences.exchange import Exchange
from tests.differences.random_sequences.any_group import AnyGroup
from tests.differences.random_sequences.consumer_groups.classic_members import ClassicMembers
from tests.differences.random_sequences.consumer_groups.members import Members
from tests.differences.random_sequences.consumer_groups.offsets import Offsets
from tests.differences.random_sequences.consumer_groups.surroundings import RANGE, Surroundings

STEPS_COUNT: Final = 60


def run(exchange: Exchange, random: Random) -> None:
    around = Surroundings(exchange, random)
    wants_classic = around.assignor == RANGE and around.steps.happens(0.5)
    members = Members(around)
    classic = ClassicMembers(around)
    offsets = Offsets(around, members, classic)
    as_any = AnyGroup(around.steps, around.group)

    def pass_by() -> None:
        if around.is_consumer_group():
            as_any.pass_by(ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest)

    actions: list[tuple[int, Callable[[], None]]] = [
        (8, members.join_new),
        (30, members.beat_any),
        (5, members.change_subscription),
        (5, members.leave),
        (8, offsets.commit),
        (4, offsets.fetch_offsets),
        (2, offsets.delete_offsets),
        (2, offsets.commit_in_transaction),
        (10, around.describe),
        (2, around.describe_as_classic),
        (1, around.delete_group),
        (3, as_any.list_it),
        (2, as_any.describe_as_any),
        (1, pass_by),
        (3, around.grow),
        (2, around.create),
        (1, around.delete),
        (10, members.settle),
    ]
    if wants_classic:
        actions += [(8, classic.join_classic), (14, classic.go_on_as_classic), (3, classic.leave_classic)]
    members.join_new()
    for _ in range(STEPS_COUNT):
        around.steps.take(actions)
        classic.await_migration()
        classic.waiting.settle()
    if around.steps.happens(0.3):
        members.run_out_of_time()
    members.settle()
    around.describe()
    offsets.fetch_offsets()
