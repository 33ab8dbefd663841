"""Offsets that members of a group, and others, commit, fetch and delete, also in transactions."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.differences.random_sequences.any_group import AnyGroup, Wanted
from tests.differences.random_sequences.consumer_groups.classic_members import ClassicMember, ClassicMembers
from tests.differences.random_sequences.consumer_groups.members import STRANGER, Member, Members, name_of
from tests.differences.random_sequences.consumer_groups.surroundings import Surroundings

FIRST_COMMIT_WITH_EPOCHS: Final = 9
FIRST_COMMIT_BY_ID: Final = 10
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)


class Offsets:
    """Those of one group."""

    def __init__(self, around: Surroundings, members: Members, classic: ClassicMembers) -> None:
        self.around = around
        self.steps, self.exchange, self.random = around.steps, around.exchange, around.random
        self._members = members
        self._classic = classic
        self._as_any = AnyGroup(self.steps, around.group)

    def committer(self) -> tuple[str, str, int, str | None]:
        """Who commits: what to call it, its member id, its epoch and its instance id."""
        known: list[Member | ClassicMember] = [member for member in self._members.members if member.epoch > 0]
        known += [member for member in self._classic.members if member.generation > 0]
        if not known or self.steps.happens(0.15):
            if self.steps.happens(0.7):
                return "nobody", "", -1, None
            return "a stranger", STRANGER, 2, None
        member = self.random.choice(known)
        epoch = member.epoch if isinstance(member, Member) else member.generation
        change = self.random.choice((0, 0, 0, 0, -1, -1, -2, 1))
        name = name_of(member) if isinstance(member, Member) else member.name
        return f"{name} in epoch {epoch + change}", member.member_id, epoch + change, member.instance

    def commit(self) -> None:
        committer, member_id, epoch, instance = self.committer()
        lowest = 0 if self.steps.happens(0.15) else FIRST_COMMIT_WITH_EPOCHS
        version = self.steps.version(OffsetCommitRequest, lowest=lowest)
        base = self.random.choice(list(self.around.topics))
        partitions = self.random.sample(range(self.around.topics[base]), self.random.choice((1, 1, 2)))
        offset = self.random.randint(0, 99)
        topic = OffsetCommitRequestTopic(
            self.around.names[base] if version < FIRST_COMMIT_BY_ID else "",
            self.around.ids[base],
            [OffsetCommitRequestPartition(partition, offset) for partition in partitions],
        )
        request = OffsetCommitRequest(self.around.group, epoch, member_id, instance, topics=[topic])
        self.steps.ask(f"{committer} commits {offset} of {partitions} of {base}", request, version)

    def fetch_offsets(self) -> None:
        committer, member_id, epoch, _ = self.committer()
        around = self.around
        wanted = [
            Wanted(around.names[base], around.ids[base], list(range(count))) for base, count in around.topics.items()
        ]
        self._as_any.fetch_offsets(committer, wanted, member_id or None, epoch)

    def delete_offsets(self) -> None:
        deleted = [
            OffsetDeleteRequestTopic(self.around.names[base], [OffsetDeleteRequestPartition(0)])
            for base in self.around.topics
        ]
        self.steps.ask("delete offsets of all topics", OffsetDeleteRequest(self.around.group, deleted), 0)

    def commit_in_transaction(self) -> None:
        committer, member_id, epoch, instance = self.committer()
        base = self.random.choice(list(self.around.topics))
        partition = self.random.randrange(self.around.topics[base])
        self._as_any.commit_in_transaction(committer, self.around.names[base], partition, member_id, epoch, instance)
