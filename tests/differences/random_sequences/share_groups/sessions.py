"""The sessions of members of share groups: they fetch, and acknowledge what they were lent, in parts, twice or not at
all.

Every member has a connection and its own session. What goes back behind an answer is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from tests.differences.exchange import ATTEMPTS, PAUSE_S, Pending
from tests.differences.random_sequences.share_groups.groups import (
    NO_SUCH_PARTITION,
    NOTHING,
    Member,
    ShareGroups,
    listed,
)
from tests.differences.random_sequences.share_groups.topics import Place, SharedTopics
from tests.differences.random_sequences.steps import SlicedWork

OPEN, CLOSE = 0, -1
MAX_WAIT_MS: Final = 100
LOADING_MS: Final = 600
"""Long enough for a partition to be loaded; it is waited for only where there is nothing to be lent."""
LENDING_PAUSE_S: Final = 0.1
"""What goes back behind an answer is there again after it; nothing tells when."""
LETTING_GO_PAUSE_S: Final = 0.02
"""Kafka answers a fetch before it releases its partitions: an immediate next fetch does not get them."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
WORDS: Final = ("gap", "accept", "release", "reject", "renew")
FIRST_WITH_RENEWAL: Final = 2
NO_SUCH_EPOCH: Final = 1_000_000
NO_SUCH_ID: Final = bytes(15) + b"\x63"
WAITING_MS: Final = 1_000


class Said(NamedTuple):
    """What a member says of a range of offsets, both inclusive."""

    first: int
    last: int
    types: tuple[int, ...]

    def __str__(self) -> str:
        words = "+".join(WORDS[number] if 0 <= number < len(WORDS) else str(number) for number in self.types)
        return f"{words} {self.first}..{self.last}"


class Waiting(NamedTuple):
    """A fetch that is not answered yet."""

    member: Member
    request: ShareFetchRequest
    pending: Pending


class Sessions:
    """What members do in their sessions."""

    def __init__(self, steps: SlicedWork, topics: SharedTopics, groups: ShareGroups) -> None:
        self.steps = steps
        self.exchange = steps.exchange
        self.random = steps.random
        self.topics = topics
        self.groups = groups

    # Fetching

    def fetch_any(self) -> None:
        self._fetch(self.random.choice(self.groups.members))

    def _fetch(self, member: Member) -> None:
        places = [place for place in self.topics.places if place.base in self.groups.known[member.group]]
        if not places:
            self.groups.join(member)
            return
        version = self.steps.version(ShareFetchRequest)
        epoch = self._session_epoch(member)
        if epoch == OPEN:
            named = self.random.sample(places, 1 if self.steps.happens(0.7) else self.random.randint(1, len(places)))
            read = named
        else:
            missing = [place for place in places if place not in member.session]
            named = [place for place in missing if self.steps.happens(0.1)]
            read = [*member.session, *named]
        if member.session_epoch == epoch or epoch == OPEN:
            self._load(member, [place for place in read if place not in self.groups.loaded[member.group]])
            if member.session_epoch is not None and epoch != OPEN:
                epoch = member.session_epoch
        forgotten = [place for place in member.session if epoch != OPEN and self.steps.happens(0.05)]
        forgotten += [place for place in member.amiss if epoch != OPEN and self.steps.happens(0.5)]
        acknowledged: dict[Place, list[Said]] = {}
        if self.steps.happens(0.4 if epoch != OPEN else 0.02):
            # What is released would be there for the fetch itself a little later.
            acknowledged = self._acknowledgements(member, (ACCEPT, ACCEPT, ACCEPT, REJECT, GAP), is_careless=True)
            acknowledged = {
                place: said for place, said in acknowledged.items() if place in self.groups.loaded[member.group]
            }
        if self.steps.happens(0.05):
            # Over the id of a topic that does not exist Kafka stumbles.
            named = [*named, Place(self.random.choice(self.topics.names), NO_SUCH_PARTITION)]
        request = self._fetch_request(member, epoch, [*named, *acknowledged], acknowledged)
        request.batch_size = self.random.choice((1, 2, 3, 10, 500))
        request.min_bytes = self.random.choice((0, 1))
        if len({*read, *acknowledged}) == 1:
            # Which of several partitions has its share of a limit goes by what Kafka has in its caches.
            request.max_records = self.random.choice((1, 2, 3, 5, 10, 500))
            request.max_bytes = self.random.choice((1 << 20, 1 << 20, 1 << 20, 300, 1))
        request.forgotten_topics_data = [
            ShareFetchForgottenTopic(self.topics.ids[place.base], [place.partition]) for place in forgotten
        ]
        what = f"{request.max_records} records in batches of {request.batch_size}, {request.max_bytes} bytes"
        if version >= FIRST_WITH_RENEWAL and self.steps.happens(0.5):
            request.share_acquire_mode = 1
            what += ", strictly"
        description = f"{member.base} fetches in session epoch {epoch} {listed(named)}: {what}"
        if forgotten:
            description += f", forgets {listed(forgotten)}"
        self._ask_fetch(member, description + _described(acknowledged), request, version, acknowledged)
        if request.share_session_epoch == member.session_epoch:
            return
        member.session = [place for place in member.session if place not in forgotten]
        member.amiss = [place for place in member.amiss if place not in forgotten]

    def _session_epoch(self, member: Member) -> int:
        if member.session_epoch is None:
            return OPEN if self.steps.happens(0.9) else self.random.choice((1, 3))
        if self.steps.happens(0.06):
            return OPEN
        if self.steps.happens(0.08):
            return member.session_epoch + self.random.choice((-1, 1, 7)) or 9
        return member.session_epoch

    def _fetch_request(
        self, member: Member, epoch: int, places: Sequence[Place], acknowledged: dict[Place, list[Said]]
    ) -> ShareFetchRequest:
        topics: dict[str, list[ShareFetchPartition]] = {}
        for place in dict.fromkeys(places):
            said = [AcknowledgementBatch(*one[:2], list(one.types)) for one in acknowledged.get(place, ())]
            topics.setdefault(place.base, []).append(ShareFetchPartition(place.partition, said))
        return ShareFetchRequest(
            group_id=self.exchange.name(member.group),
            member_id=member.member_id,
            share_session_epoch=epoch,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchTopic(self.topics.ids[base], partitions) for base, partitions in topics.items()],
        )

    def _topic_id(self, base: str) -> bytes:
        return self.topics.ids.get(base, NO_SUCH_ID)

    def _ask_fetch(
        self,
        member: Member,
        description: str,
        request: ShareFetchRequest,
        version: int,
        acknowledged: dict[Place, list[Said]],
    ) -> None:
        reply = self.steps.ask(description, request, version, connection=member.connection)
        time.sleep(LETTING_GO_PAUSE_S)
        self._fetched(member, request, reply, acknowledged)

    def _fetched(
        self,
        member: Member,
        request: ShareFetchRequest,
        reply: ShareFetchResponse | None,
        acknowledged: dict[Place, list[Said]],
    ) -> None:
        if reply is None:
            self.reconnect(member)
            return
        if reply.error_code:
            return
        epoch = request.share_session_epoch
        bases = self.topics.bases
        if epoch == OPEN:
            member.session, member.amiss = [], []
        if epoch == CLOSE:
            self._session_is_over(member)
        else:
            member.session_epoch = epoch + 1
            for wanted in request.topics:
                for partition in wanted.partitions:
                    place = Place(bases.get(wanted.topic_id, NOTHING), partition.partition_index)
                    places = member.session if place in self.topics.places else member.amiss
                    if place not in places:
                        places.append(place)
        for topic in reply.responses:
            for answer in topic.partitions:
                place = Place(bases.get(topic.topic_id, NOTHING), answer.partition_index)
                if place in acknowledged and not answer.acknowledge_error_code:
                    self._take_in(member, place, acknowledged[place])
                for acquired in answer.acquired_records:
                    member.lent.setdefault(place, []).append((acquired.first_offset, acquired.last_offset))
        for ranges in member.lent.values():
            ranges.sort()

    def _load(self, member: Member, places: Sequence[Place]) -> None:
        """Have each partition fetched alone first: Kafka answers when any of several has been loaded."""
        for place in places:
            request = self._fetch_request(member, OPEN, [place], {})
            request.max_wait_ms, request.max_records = LOADING_MS, 1
            version = self.steps.version(ShareFetchRequest)
            self._ask_fetch(member, f"{member.base} is the first to fetch {place}", request, version, {})
            self.groups.loaded[member.group].add(place)
        if places:
            others = [place for place in member.session if place not in places]
            assert not others

    # Waiting

    def begin_waiting(self) -> Waiting | None:
        """A fetch of a member whose partitions have all been loaded; None when there is none."""
        members = [
            member
            for member in self.groups.members
            if member.session and self.groups.loaded[member.group].issuperset(member.session)
        ]
        if not members:
            return None
        member = self.random.choice(members)
        request = self._fetch_request(member, member.session_epoch or OPEN, [], {})
        request.max_wait_ms, request.min_bytes = WAITING_MS, 1
        version = self.steps.version(ShareFetchRequest)
        situation = self.steps.situation(f"{member.base} waits in session epoch {member.session_epoch}")
        waiting = Waiting(member, request, self.exchange.begin(situation, request, version))
        time.sleep(LENDING_PAUSE_S)
        return waiting

    def finish_waiting(self, waiting: Waiting) -> None:
        reply = self.exchange.finish(waiting.pending)
        time.sleep(LETTING_GO_PAUSE_S)
        self._fetched(waiting.member, waiting.request, reply, {})

    # Ending

    def close_session(self) -> None:
        member = self.random.choice(self.groups.members)
        if member.session_epoch is None and self.steps.happens(0.7):
            return self._fetch(member)
        acknowledged = self._acknowledgements(member, (ACCEPT, RELEASE, REJECT), is_careless=False)
        if self.steps.happens(0.5):
            version = self.steps.version(ShareFetchRequest)
            request = self._fetch_request(member, CLOSE, list(acknowledged), acknowledged)
            description = f"{member.base} closes its session{_described(acknowledged)}"
            self._ask_fetch(member, description, request, version, acknowledged)
        else:
            self._acknowledge(member, CLOSE, acknowledged)
        return None

    def close(self, member: Member) -> None:
        """Without a word about what the member has."""
        request = self._fetch_request(member, CLOSE, [], {})
        version = self.steps.version(ShareFetchRequest)
        self._ask_fetch(member, f"{member.base} closes its session", request, version, {})

    def disconnect(self) -> None:
        """The member is gone without a word, and comes back on another connection."""
        self.reconnect(self.random.choice(self.groups.members))

    def reconnect(self, member: Member) -> None:
        member.connection.close()
        member.connection = self.exchange.connect()
        probe = ShareAcknowledgeRequest(self.exchange.name(member.group), member.member_id, NO_SUCH_EPOCH)
        for _ in range(ATTEMPTS):
            if self.exchange.call(probe, 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
                break
            time.sleep(PAUSE_S)
        self._session_is_over(member)
        if all(other.session_epoch is None for other in self.groups.members if other.group == member.group):
            self.groups.loaded[member.group].clear()

    def _session_is_over(self, member: Member) -> None:
        time.sleep(LENDING_PAUSE_S)
        member.session_epoch = None
        member.session, member.amiss = [], []
        member.lent.clear()

    # Acknowledging

    def acknowledge_any(self) -> None:
        self.acknowledge_of(self.groups.members)

    def acknowledge_of(self, members: Sequence[Member]) -> None:
        having = [member for member in members if any(member.lent.values()) and member.session_epoch is not None]
        member = self.random.choice(having or members)
        if not having or self.steps.happens(0.05):
            member = self.random.choice(members)
        epoch = member.session_epoch or self.random.choice((0, 1, 4))
        if self.steps.happens(0.08):
            epoch = max(0, epoch + self.random.choice((-1, 1, 5)))
        types = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, REJECT, GAP)
        acknowledged = self._acknowledgements(member, types, is_careless=True)
        if not acknowledged and self.steps.happens(0.9):
            self._fetch(member)
        elif epoch and self.steps.happens(0.1):
            self._renew_in_fetch(member, epoch, acknowledged)
        else:
            if self.steps.happens(0.05):
                place = Place(self.random.choice([NOTHING, *self.topics.names]), NO_SUCH_PARTITION)
                acknowledged[place] = [Said(0, 0, (ACCEPT,))] * self.steps.happens(0.5)
            self._acknowledge(member, epoch, acknowledged)

    def _renew_in_fetch(self, member: Member, epoch: int, acknowledged: dict[Place, list[Said]]) -> None:
        """A fetch that only renews, and lends nothing."""
        renewed = {
            place: [
                one._replace(types=tuple(RENEW if self.steps.happens(0.8) else kind for kind in one.types))
                for one in said
            ]
            for place, said in acknowledged.items()
        }
        request = self._fetch_request(member, epoch, list(renewed), renewed)
        request.is_renew_ack = True
        request.max_wait_ms = request.max_bytes = request.max_records = 0
        if self.steps.happens(0.2):
            request.max_records = 1
        description = (
            f"{member.base} renews in session epoch {epoch}, wanting {request.max_records}{_described(renewed)}"
        )
        self._ask_fetch(member, description, request, FIRST_WITH_RENEWAL, {})

    def _acknowledge(self, member: Member, epoch: int, acknowledged: dict[Place, list[Said]]) -> None:
        version = self.steps.version(ShareAcknowledgeRequest)
        topics: dict[str, list[ShareAcknowledgePartition]] = {}
        for place, ranges in acknowledged.items():
            said = [AcknowledgementBatch(*one[:2], list(one.types)) for one in ranges]
            topics.setdefault(place.base, []).append(ShareAcknowledgePartition(place.partition, said))
        request = ShareAcknowledgeRequest(
            self.exchange.name(member.group),
            member.member_id,
            epoch,
            topics=[ShareAcknowledgeTopic(self._topic_id(base), partitions) for base, partitions in topics.items()],
        )
        what = f"{member.base} in session epoch {epoch}{_described(acknowledged)}"
        if version >= FIRST_WITH_RENEWAL and self.steps.happens(0.2):
            request.is_renew_ack = True
            what += ", renewing"
            for topic in request.topics:
                for partition in topic.partitions:
                    for each in partition.acknowledgement_batches:
                        each.acknowledge_types = [
                            RENEW if self.steps.happens(0.6) else number for number in each.acknowledge_types
                        ]
                        what += f" {each.acknowledge_types}"
        reply = self.steps.ask(f"acknowledge: {what}", request, version, connection=member.connection)
        if reply is None:
            self.reconnect(member)
            return
        if reply.error_code:
            return
        bases = self.topics.bases
        if epoch == CLOSE:
            self._session_is_over(member)
        else:
            member.session_epoch = epoch + 1
        for topic in reply.responses:
            for answer in topic.partitions:
                place = Place(bases.get(topic.topic_id, NOTHING), answer.partition_index)
                if not answer.error_code and not request.is_renew_ack:
                    self._take_in(member, place, acknowledged.get(place, ()))

    def _take_in(self, member: Member, place: Place, said: Sequence[Said]) -> None:
        """What a member has acknowledged is its own no longer."""
        for one in said:
            member.done.setdefault(place, []).append((one.first, one.last))
            left: list[tuple[int, int]] = []
            for first, last in member.lent.get(place, ()):
                left += [
                    part
                    for part in ((first, min(last, one.first - 1)), (max(first, one.last + 1), last))
                    if part[0] <= part[1]
                ]
            member.lent[place] = left

    def _acknowledgements(self, member: Member, types: Sequence[int], *, is_careless: bool) -> dict[Place, list[Said]]:
        """Something about some of what the member has; now and then about something else."""
        acknowledged: dict[Place, list[Said]] = {}
        for place in self.topics.places:
            lent = member.lent.get(place, [])
            said: list[Said] = []
            for first, last in lent:
                if not self.steps.happens(0.7):
                    continue
                if self.steps.happens(0.4):
                    first = self.random.randint(first, last)
                if self.steps.happens(0.4):
                    last = self.random.randint(first, last)
                said.append(self._said(first, last, types))
            if is_careless and self.steps.happens(0.15):
                said = self._spoiled(member, place, said, types)
            if said:
                acknowledged[place] = said
        return acknowledged

    def _said(self, first: int, last: int, types: Sequence[int]) -> Said:
        count = last - first + 1
        if count > 1 and self.steps.happens(0.3):
            return Said(first, last, tuple(self.random.choices(types, k=count)))
        return Said(first, last, (self.random.choice(types),))

    def _spoiled(self, member: Member, place: Place, said: list[Said], types: Sequence[int]) -> list[Said]:
        others = [other for other in self.groups.members if other.group == member.group and other is not member]
        foreign = [one for other in others for one in other.lent.get(place, ())]
        kind = self.random.randrange(8)
        if kind == 0 and foreign:
            said = [*said, self._said(*self.random.choice(foreign), types)]
        elif kind == 1 and member.done.get(place):
            said = [*said, self._said(*self.random.choice(member.done[place]), types)]
        elif kind == 2 and said:
            said = [*said[:-1], said[-1]._replace(last=said[-1].last + self.random.randint(1, 3), types=(types[0],))]
        elif kind == 3 and said:
            said = [*said, Said(said[-1].last, said[-1].last + 1, (ACCEPT,))]
        elif kind == 4 and said:
            said = [*said[:-1], said[-1]._replace(types=(*said[-1].types, ACCEPT))]
        elif kind == 5:
            # Kafka stumbles where a group stands within that has nothing in flight, at most one behind the end.
            said = [*said, Said(self.topics.ends[place] + 1, self.topics.ends[place] + 3, (ACCEPT,))]
        elif kind == 6 and said:
            said = [*said[:-1], said[-1]._replace(types=(self.random.choice((7, -1, RENEW)),))]
        elif kind == 7 and said:
            first = max(0, said[0].first - self.random.randint(1, 2))
            said = [said[0]._replace(first=first, types=(types[0],)), *said[1:]]
        return sorted(said) if self.steps.happens(0.8) else said


def _described(acknowledged: dict[Place, list[Said]]) -> str:
    words = [f"{one} of {place}" for place, said in acknowledged.items() for one in said]
    return f", acknowledges {', '.join(words)}" if words else ""
