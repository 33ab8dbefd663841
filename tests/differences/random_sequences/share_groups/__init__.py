"""Members of share groups that borrow records, give them back in parts, twice or not at all, and come and go."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.differences.exchange import Exchange
from tests.differences.random_sequences.share_groups.groups import JOIN, LEAVE, MEMBERLESS, ShareGroups
from tests.differences.random_sequences.share_groups.sessions import Sessions
from tests.differences.random_sequences.share_groups.strangers import Strangers
from tests.differences.random_sequences.share_groups.topics import SharedTopics
from tests.differences.random_sequences.steps import SlicedWork

STEPS_COUNT: Final = 60


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics = SharedTopics(self.steps)
        self.groups = ShareGroups(self.steps, self.topics)
        self.sessions = Sessions(self.steps, self.topics, self.groups)

    def run(self) -> None:
        topics, groups, sessions = self.topics, self.groups, self.sessions
        strangers = Strangers(self.steps, groups)
        topics.initialize_producer()
        groups.configure()
        if self.steps.happens(0.5):
            topics.produce()
        for member in groups.members[:: self.random.randint(1, 2)]:
            groups.join(member)
        actions = (
            (12, topics.produce),
            (6, topics.produce_in_transaction),
            (4, topics.end_transaction),
            (24, sessions.fetch_any),
            (4, self.wait_for_others),
            (20, sessions.acknowledge_any),
            (7, groups.heartbeat),
            (5, groups.describe_offsets),
            (3, groups.describe_group),
            (2, self.leave_and_change),
            (3, topics.delete_records),
            (2, groups.change_a_config),
            (2, sessions.disconnect),
            (2, sessions.close_session),
            (1, self.delete_group),
            (1, groups.list_groups),
            (2, groups.grow_a_topic),
            (2, strangers.ask),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        for group in groups.names:
            groups.describe(group)
            groups.offsets_of(group, None)

    def wait_for_others(self) -> None:
        """A member waits for records, and then something is written, or another says something of what it has."""
        waiting = self.sessions.begin_waiting()
        if waiting is None:
            self.sessions.fetch_any()
            return
        others = [other for other in self.groups.members if other is not waiting.member]
        self.random.choice(
            (
                self.topics.produce_once,
                self.topics.end_transaction,
                lambda: self.sessions.acknowledge_of(others),
                lambda: self.sessions.close(self.random.choice(others)),
            )
        )()
        self.sessions.finish_waiting(waiting)

    # Groups without members

    def leave_and_change(self) -> None:
        group = self.random.choice((*self.groups.names, MEMBERLESS))
        if self.steps.happens(0.85) or not self.groups.has_members(group):
            self.all_leave(group)
        if self.steps.happens(0.6):
            self.groups.alter_offsets(group)
        else:
            self.groups.delete_offsets(group)

    def delete_group(self) -> None:
        group = self.random.choice((*self.groups.names, MEMBERLESS))
        if self.steps.happens(0.7) or not self.groups.has_members(group):
            self.all_leave(group)
        self.groups.delete(group)

    def all_leave(self, group: str) -> None:
        """As consumers do it, which do not keep their connections."""
        for member in self.groups.members_of(group):
            if member.session_epoch is not None and self.steps.happens(0.7):
                self.sessions.close(member)
            if member.epoch != JOIN:
                self.groups.beat(member, LEAVE, None)
            self.sessions.reconnect(member)


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
