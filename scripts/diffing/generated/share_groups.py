"""Members of share groups that borrow records, give them back in parts, twice or not at all, and come and go.

Every member has a connection and a session of its own. What Kafka does behind its answers is waited for: state that
coordinators make for share partitions, records that go back when a session ends, and settings that brokers learn of.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.group_admin import DeleteGroupsRequest, ListGroupsRequest
from protocol.messages.share_fetch import (
    ShareAcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchAcknowledgementBatch,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from protocol.messages.transaction_admin import DescribeTransactionsRequest
from protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from scripts.diffing.connection import Connection
from scripts.diffing.exchange import ATTEMPTS, GROUP, PAUSE_S, TRANSACTION, Exchange, batch
from scripts.diffing.generated.steps import Steps
from scripts.diffing.generated.transactions import BUSY, SETTLED
from scripts.diffing.sequences.produce import Producing

STEPS_COUNT: Final = 60
MEMBERS_PER_GROUP: Final = 3
JOIN, LEAVE = 0, -1
OPEN, CLOSE = 0, -1
GROUP_RESOURCE, SET = 32, 0
LEAVE_TIME: Final = {  # so that nothing runs out while a sequence is asked
    "share.record.lock.duration.ms": "60000",
    "share.session.timeout.ms": "60000",
    "share.assignment.interval.ms": "0",
}
MAX_WAIT_MS: Final = 100
LOADING_MS: Final = 600
"""Long enough for a partition to be loaded; it is waited for only where there is nothing to be lent."""
LENDING_PAUSE_S: Final = 0.1
"""What goes back behind an answer is there again after it; nothing tells when."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
WORDS: Final = ("gap", "accept", "release", "reject", "renew")
FIRST_WITH_RENEWAL: Final = 2
NO_SUCH_EPOCH: Final = 1_000_000
PRODUCE_VERSION: Final = 12


class Place(NamedTuple):
    """A partition of a topic, by the name that descriptions have for the topic."""

    base: str
    partition: int

    def __str__(self) -> str:
        return f"{self.base}-{self.partition}"


class Said(NamedTuple):
    """What a member says of a range of offsets, both inclusive."""

    first: int
    last: int
    types: tuple[int, ...]

    def __str__(self) -> str:
        words = "+".join(WORDS[number] if 0 <= number < len(WORDS) else str(number) for number in self.types)
        return f"{words} {self.first}..{self.last}"


@dataclass
class Member:
    """What a member has been told, and what it has done with its session so far.

    base: what descriptions call it. lent: ranges that it has not acknowledged. done: ranges that it has.
    """

    base: str
    group: str
    member_id: str
    connection: Connection
    epoch: int = JOIN
    session_epoch: int | None = None
    session: list[Place] = field(default_factory=list)
    lent: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    done: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = Steps(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics = {base: random.randint(1, 2) for base in ("data", "more")[: random.randint(1, 2)]}
        for base, count in self.topics.items():
            exchange.create_topic(base, partitions=count)
        self.topic_ids = {base: exchange.topic_id(exchange.name(base)) for base in self.topics}
        self.places = [Place(base, index) for base, count in self.topics.items() for index in range(count)]
        self.groups = ["one", "two"][: random.randint(1, 2)]
        self.members = [self.member(group, number) for group in self.groups for number in range(MEMBERS_PER_GROUP)]
        self.loaded: dict[str, set[Place]] = {group: set() for group in self.groups}
        self.bases_passed_over: set[str] = set()
        self.known: dict[str, set[str]] = {group: set() for group in self.groups}
        self.ends = dict.fromkeys(self.places, 0)
        self.batch_ends: dict[Place, list[int]] = {place: [0] for place in self.places}
        self.producer: tuple[int, int] | None = None
        self.sequences: dict[Place, int] = {}
        self.is_in_transaction = False

    def member(self, group: str, number: int) -> Member:
        base = f"{group}/{'abc'[number]}"
        member_id = ordered_id(self.random, number)
        self.exchange.remember(member_id, base)
        return Member(base, group, member_id, self.exchange.connect())

    def run(self) -> None:
        self.exchange.find_coordinator(self.exchange.name("producer"), TRANSACTION)
        self.initialize_producer()
        for group in self.groups:
            self.exchange.find_coordinator(self.exchange.name(group), GROUP)
            self.change_configs(
                group,
                {
                    **LEAVE_TIME,
                    "share.auto.offset.reset": self.random.choice(("earliest", "earliest", "latest")),
                    "share.isolation.level": self.random.choice(("read_committed", "read_uncommitted")),
                    "share.delivery.count.limit": str(self.random.choice((2, 3, 5, 6))),
                    "share.partition.max.record.locks": self.random.choice(("100", "2000")),
                    "share.renew.acknowledge.enable": self.random.choice(("true", "true", "false")),
                },
            )
        if self.steps.happens(0.5):
            self.produce()
        for member in self.members[:: self.random.randint(1, 2)]:
            self.join(member)
        actions = (
            (12, self.produce),
            (6, self.produce_in_transaction),
            (4, self.end_transaction),
            (24, self.fetch_any),
            (20, self.acknowledge_any),
            (7, self.heartbeat),
            (5, self.describe_offsets),
            (3, self.describe_group),
            (2, self.leave_and_change),
            (3, self.delete_records),
            (2, self.change_a_config),
            (2, self.disconnect),
            (2, self.close_session),
            (1, self.delete_group),
            (1, self.list_groups),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        for group in self.groups:
            self.describe(group)
            self.offsets_of(group, None)

    # Records

    def initialize_producer(self) -> None:
        request = InitProducerIdRequest(self.exchange.name("producer"), 600_000)
        reply = self.exchange.call(request, 4, retry=BUSY)
        self.producer = reply.producer_id, reply.producer_epoch

    def produce(self) -> None:
        place = self.random.choice(self.places)
        counts = [self.random.choice((1, 2, 3, 5, 8))] * self.random.choice((1, 1, 2))
        if self.steps.happens(0.08):
            counts = [self.random.choice((40, 70))]
        producing = Producing(self.exchange, PRODUCE_VERSION)
        for count in counts:
            request = producing.request(
                producing.topic(self.exchange.name(place.base), (place.partition, batch(count)))
            )
            self.steps.ask(f"{count} records for {place}", request, PRODUCE_VERSION)
            self.appended(place, count)

    def appended(self, place: Place, count: int) -> None:
        self.ends[place] += count
        self.batch_ends[place].append(self.ends[place])

    def produce_in_transaction(self) -> None:
        assert self.producer is not None
        place, count = self.random.choice(self.places), self.random.randint(1, 4)
        producer_id, epoch = self.producer
        sequence = self.sequences.get(place, 0)
        records = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        producing = Producing(self.exchange, PRODUCE_VERSION)
        topic = producing.topic(self.exchange.name(place.base), (place.partition, records))
        request = producing.request(topic, transactional_id=self.exchange.name("producer"))
        self.steps.ask(f"{count} records of a transaction for {place}", request, PRODUCE_VERSION, retry=BUSY)
        self.sequences[place] = sequence + count
        self.appended(place, count)
        self.is_in_transaction = True

    def end_transaction(self) -> None:
        if not self.is_in_transaction:
            self.produce_in_transaction()
        assert self.producer is not None
        producer_id, epoch = self.producer
        committed = self.steps.happens(0.5)
        name = self.exchange.name("producer")
        what = "commit" if committed else "abort"
        reply = self.steps.ask(what, EndTxnRequest(name, producer_id, epoch, committed), 5, retry=BUSY)
        for _ in range(ATTEMPTS):
            described = self.exchange.call(DescribeTransactionsRequest([name]), 0)
            if described.transaction_states[0].transaction_state in SETTLED - {"Ongoing"}:
                break
            time.sleep(PAUSE_S)
        self.producer = reply.producer_id, reply.producer_epoch
        for place in self.sequences:
            self.appended(place, 1)
            if not committed:
                self.bases_passed_over.add(place.base)
        self.sequences.clear()
        self.is_in_transaction = False

    def delete_records(self) -> None:
        place = self.random.choice(self.places)
        # What begins within a batch is Kafka's to read from its beginning, or not.
        offset = self.random.choice((-1, *self.batch_ends[place][-4:]))
        topic = DeleteRecordsTopic(self.exchange.name(place.base), [DeleteRecordsPartition(place.partition, offset)])
        request = DeleteRecordsRequest([topic], 5_000)
        self.steps.ask(f"delete {place} up to {offset}", request, self.steps.version(DeleteRecordsRequest))
        self.bases_passed_over.add(place.base)

    # Settings

    def change_configs(self, group: str, configs: dict[str, str]) -> None:
        """Return when the broker goes by them."""
        name = self.exchange.name(group)
        wanted = [IncrementalAlterableConfig(key, SET, value) for key, value in configs.items()]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_RESOURCE, name, wanted)])
        what = ", ".join(f"{key}={value}" for key, value in configs.items() if key not in LEAVE_TIME)
        self.steps.ask(f"{group} has {what}", request, 1)
        shown = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, name, list(configs))])
        for _ in range(ATTEMPTS):
            reply = self.exchange.call(shown, 4)
            if {config.name: config.value for config in reply.results[0].configs} == configs:
                break
            time.sleep(PAUSE_S)
        time.sleep(PAUSE_S)  # Kafka shows what it is about to go by

    def change_a_config(self) -> None:
        name, values = self.random.choice(
            (
                ("share.isolation.level", ("read_committed", "read_uncommitted")),
                ("share.delivery.count.limit", ("2", "3", "4", "6", "8")),
                ("share.auto.offset.reset", ("earliest", "latest")),
                ("share.renew.acknowledge.enable", ("true", "false")),
            )
        )
        self.change_configs(self.random.choice(self.groups), {name: self.random.choice(values)})

    # Membership

    def join(self, member: Member) -> None:
        self.beat(member, JOIN, self.random.choice(list(self.topics)))

    def heartbeat(self) -> None:
        member = self.random.choice(self.members)
        if member.epoch == JOIN or self.steps.happens(0.1):
            self.join(member)
            return
        epoch = member.epoch
        if self.steps.happens(0.3):
            epoch = max(1, epoch + self.random.choice((-2, -1, 1, 5)))
        elif self.steps.happens(0.2):
            epoch = LEAVE
        self.beat(member, epoch, self.random.choice((None, None, *self.topics)))

    def beat(self, member: Member, epoch: int, base: str | None) -> None:
        request = ShareGroupHeartbeatRequest(self.exchange.name(member.group), member.member_id, epoch)
        what = f"{member.base} of epoch {epoch}"
        if base is not None and epoch != LEAVE:
            request.subscribed_topic_names = [self.exchange.name(base)]
            what += f" wants {base}"
        reply = self.steps.ask(f"heartbeat: {what}", request, self.steps.version(ShareGroupHeartbeatRequest))
        if reply.error_code:
            return
        member.epoch = max(JOIN, reply.member_epoch)
        if request.subscribed_topic_names is not None and base is not None:
            self.known[member.group].add(base)
        self.settle_group(member.group)

    def settle_group(self, group: str) -> None:
        """Return when all share partitions that members want have state."""
        name = self.exchange.name(group)
        for _ in range(ATTEMPTS):
            described = self.exchange.call(ShareGroupDescribeRequest([name]), 1).groups[0]
            wanted = {topic for member in described.members for topic in member.subscribed_topic_names}
            reply = self.exchange.call(
                DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(name, None)]), 1
            )
            known = {topic.topic_name: len(topic.partitions) for topic in reply.groups[0].topics}
            if all(
                known.get(self.exchange.name(base)) == count
                for base, count in self.topics.items()
                if self.exchange.name(base) in wanted
            ):
                return
            time.sleep(PAUSE_S)

    def describe_group(self) -> None:
        self.describe(self.random.choice(self.groups))

    def describe(self, group: str) -> None:
        self.steps.ask(f"describe {group}", ShareGroupDescribeRequest([self.exchange.name(group)]), 1)

    def list_groups(self) -> None:
        # Other groups are on the broker, too; those of the run alone are described.
        states = ShareGroupDescribeRequest([self.exchange.name(group) for group in self.groups])
        self.steps.ask("describe all groups", states, 1)
        listed = self.exchange.call(ListGroupsRequest(types_filter=["share"]), 5)
        own = {self.exchange.name(group) for group in self.groups}
        found = sorted((one.group_id.split("-")[0], one.group_state) for one in listed.groups if one.group_id in own)
        self.exchange.note(self.steps.situation("listed"), 5, [list(one) for one in found])

    # Sessions

    def fetch_any(self) -> None:
        self.fetch(self.random.choice(self.members))

    def fetch(self, member: Member) -> None:
        places = [place for place in self.places if place.base in self.known[member.group]]
        if not places:
            self.join(member)
            return
        version = self.steps.version(ShareFetchRequest)
        epoch = self.session_epoch(member)
        if epoch == OPEN:
            named = self.random.sample(places, 1 if self.steps.happens(0.7) else self.random.randint(1, len(places)))
            read = named
        else:
            missing = [place for place in places if place not in member.session]
            named = [place for place in missing if self.steps.happens(0.1)]
            read = [*member.session, *named]
        if member.session_epoch == epoch or epoch == OPEN:
            self.load(member, [place for place in read if place not in self.loaded[member.group]])
            if member.session_epoch is not None and epoch != OPEN:
                epoch = member.session_epoch
        forgotten = [place for place in member.session if epoch != OPEN and self.steps.happens(0.05)]
        acknowledged: dict[Place, list[Said]] = {}
        if self.steps.happens(0.4 if epoch != OPEN else 0.02):
            # What is released would be there for the fetch itself a little later.
            acknowledged = self.acknowledgements(member, (ACCEPT, ACCEPT, ACCEPT, REJECT, GAP), is_careless=True)
            acknowledged = {place: said for place, said in acknowledged.items() if place in self.loaded[member.group]}
        request = self.fetch_request(member, epoch, [*named, *acknowledged], acknowledged)
        request.batch_size = self.random.choice((1, 2, 3, 10, 500))
        request.min_bytes = self.random.choice((0, 1))
        if len({*read, *acknowledged}) == 1:
            # Which of several partitions has its share of a limit goes by what Kafka has in its caches.
            request.max_records = self.random.choice((1, 2, 3, 5, 10, 500))
            request.max_bytes = self.random.choice((1 << 20, 1 << 20, 1 << 20, 300, 1))
        request.forgotten_topics_data = [
            ShareFetchForgottenTopic(self.topic_ids[place.base], [place.partition]) for place in forgotten
        ]
        what = f"{request.max_records} records in batches of {request.batch_size}, {request.max_bytes} bytes"
        if version >= FIRST_WITH_RENEWAL and self.steps.happens(0.5):
            request.share_acquire_mode = 1
            what += ", strictly"
        description = f"{member.base} fetches in session epoch {epoch} {_listed(named)}: {what}"
        if forgotten:
            description += f", forgets {_listed(forgotten)}"
        self.ask_fetch(member, description + _told(acknowledged), request, version, acknowledged)
        if request.share_session_epoch == member.session_epoch:
            return
        member.session = [place for place in member.session if place not in forgotten]

    def session_epoch(self, member: Member) -> int:
        if member.session_epoch is None:
            return OPEN if self.steps.happens(0.9) else self.random.choice((1, 3))
        if self.steps.happens(0.06):
            return OPEN
        if self.steps.happens(0.08):
            return member.session_epoch + self.random.choice((-1, 1, 7)) or 9
        return member.session_epoch

    def fetch_request(
        self, member: Member, epoch: int, places: Sequence[Place], acknowledged: dict[Place, list[Said]]
    ) -> ShareFetchRequest:
        topics: dict[str, list[ShareFetchPartition]] = {}
        for place in dict.fromkeys(places):
            said = [ShareFetchAcknowledgementBatch(*one[:2], list(one.types)) for one in acknowledged.get(place, ())]
            topics.setdefault(place.base, []).append(ShareFetchPartition(place.partition, said))
        return ShareFetchRequest(
            group_id=self.exchange.name(member.group),
            member_id=member.member_id,
            share_session_epoch=epoch,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchTopic(self.topic_ids[base], partitions) for base, partitions in topics.items()],
        )

    def ask_fetch(
        self,
        member: Member,
        description: str,
        request: ShareFetchRequest,
        version: int,
        acknowledged: dict[Place, list[Said]],
    ) -> None:
        reply = self.steps.ask(description, request, version, connection=member.connection)
        if reply is None:
            self.reconnect(member)
            return
        if reply.error_code:
            return
        epoch = request.share_session_epoch
        bases = {topic_id: base for base, topic_id in self.topic_ids.items()}
        if epoch == OPEN:
            member.session = []
        if epoch == CLOSE:
            self.session_is_over(member)
        else:
            member.session_epoch = epoch + 1
            for topic in request.topics:
                if topic.topic_id in bases:
                    places = [Place(bases[topic.topic_id], one.partition_index) for one in topic.partitions]
                    member.session += [place for place in places if place not in member.session]
        for topic in reply.responses:
            for answer in topic.partitions:
                place = Place(bases.get(topic.topic_id, "nothing"), answer.partition_index)
                if place in acknowledged and not answer.acknowledge_error_code:
                    self.take_in(member, place, acknowledged[place])
                for acquired in answer.acquired_records:
                    member.lent.setdefault(place, []).append((acquired.first_offset, acquired.last_offset))
        for ranges in member.lent.values():
            ranges.sort()

    def load(self, member: Member, places: Sequence[Place]) -> None:
        """Have each partition fetched alone first: Kafka answers when any of several has been loaded."""
        for place in places:
            request = self.fetch_request(member, OPEN, [place], {})
            request.max_wait_ms, request.max_records = LOADING_MS, 1
            version = self.steps.version(ShareFetchRequest)
            self.ask_fetch(member, f"{member.base} is the first to fetch {place}", request, version, {})
            self.loaded[member.group].add(place)
        if places:
            others = [place for place in member.session if place not in places]
            assert not others

    def close_session(self) -> None:
        member = self.random.choice(self.members)
        if member.session_epoch is None and self.steps.happens(0.7):
            return self.fetch(member)
        acknowledged = self.acknowledgements(member, (ACCEPT, RELEASE, REJECT), is_careless=False)
        if self.steps.happens(0.5):
            version = self.steps.version(ShareFetchRequest)
            request = self.fetch_request(member, CLOSE, list(acknowledged), acknowledged)
            description = f"{member.base} closes its session{_told(acknowledged)}"
            self.ask_fetch(member, description, request, version, acknowledged)
        else:
            self.acknowledge(member, CLOSE, acknowledged)
        return None

    def session_is_over(self, member: Member) -> None:
        time.sleep(LENDING_PAUSE_S)
        member.session_epoch = None
        member.session = []
        member.lent.clear()

    def disconnect(self) -> None:
        """The member is gone without a word, and comes back on another connection."""
        self.reconnect(self.random.choice(self.members))

    def reconnect(self, member: Member) -> None:
        member.connection.close()
        member.connection = self.exchange.connect()
        probe = ShareAcknowledgeRequest(self.exchange.name(member.group), member.member_id, NO_SUCH_EPOCH)
        for _ in range(ATTEMPTS):
            if self.exchange.call(probe, 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
                break
            time.sleep(PAUSE_S)
        self.session_is_over(member)
        if all(other.session_epoch is None for other in self.members if other.group == member.group):
            self.loaded[member.group].clear()

    # Acknowledging

    def acknowledge_any(self) -> None:
        having = [member for member in self.members if any(member.lent.values()) and member.session_epoch is not None]
        member = self.random.choice(having or self.members)
        if not having or self.steps.happens(0.05):
            member = self.random.choice(self.members)
        epoch = member.session_epoch or self.random.choice((0, 1, 4))
        if self.steps.happens(0.08):
            epoch = max(0, epoch + self.random.choice((-1, 1, 5)))
        types = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, REJECT, GAP)
        acknowledged = self.acknowledgements(member, types, is_careless=True)
        if acknowledged:
            self.acknowledge(member, epoch, acknowledged)
        else:
            self.fetch(member)

    def acknowledge(self, member: Member, epoch: int, acknowledged: dict[Place, list[Said]]) -> None:
        version = self.steps.version(ShareAcknowledgeRequest)
        topics: dict[str, list[ShareAcknowledgePartition]] = {}
        for place, ranges in acknowledged.items():
            said = [ShareAcknowledgementBatch(*one[:2], list(one.types)) for one in ranges]
            topics.setdefault(place.base, []).append(ShareAcknowledgePartition(place.partition, said))
        request = ShareAcknowledgeRequest(
            self.exchange.name(member.group),
            member.member_id,
            epoch,
            topics=[ShareAcknowledgeTopic(self.topic_ids[base], partitions) for base, partitions in topics.items()],
        )
        what = f"{member.base} in session epoch {epoch}{_told(acknowledged)}"
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
        bases = {topic_id: base for base, topic_id in self.topic_ids.items()}
        if epoch == CLOSE:
            self.session_is_over(member)
        else:
            member.session_epoch = epoch + 1
        for topic in reply.responses:
            for answer in topic.partitions:
                place = Place(bases[topic.topic_id], answer.partition_index)
                if not answer.error_code and not request.is_renew_ack:
                    self.take_in(member, place, acknowledged.get(place, ()))

    def take_in(self, member: Member, place: Place, said: Sequence[Said]) -> None:
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

    def acknowledgements(self, member: Member, types: Sequence[int], *, is_careless: bool) -> dict[Place, list[Said]]:
        """Something about some of what the member has; now and then about something else."""
        acknowledged: dict[Place, list[Said]] = {}
        for place in self.places:
            lent = member.lent.get(place, [])
            said: list[Said] = []
            for first, last in lent:
                if not self.steps.happens(0.7):
                    continue
                if self.steps.happens(0.4):
                    first = self.random.randint(first, last)
                if self.steps.happens(0.4):
                    last = self.random.randint(first, last)
                said.append(self.said(first, last, types))
            if is_careless and self.steps.happens(0.15):
                said = self.spoiled(member, place, said, types)
            if said:
                acknowledged[place] = said
        return acknowledged

    def said(self, first: int, last: int, types: Sequence[int]) -> Said:
        count = last - first + 1
        if count > 1 and self.steps.happens(0.3):
            return Said(first, last, tuple(self.random.choices(types, k=count)))
        return Said(first, last, (self.random.choice(types),))

    def spoiled(self, member: Member, place: Place, said: list[Said], types: Sequence[int]) -> list[Said]:
        others = [other for other in self.members if other.group == member.group and other is not member]
        foreign = [one for other in others for one in other.lent.get(place, ())]
        kind = self.random.randrange(8)
        if kind == 0 and foreign:
            said = [*said, self.said(*self.random.choice(foreign), types)]
        elif kind == 1 and member.done.get(place):
            said = [*said, self.said(*self.random.choice(member.done[place]), types)]
        elif kind == 2 and said:
            said = [*said[:-1], said[-1]._replace(last=said[-1].last + self.random.randint(1, 3), types=(types[0],))]
        elif kind == 3 and said:
            said = [*said, Said(said[-1].last, said[-1].last + 1, (ACCEPT,))]
        elif kind == 4 and said:
            said = [*said[:-1], said[-1]._replace(types=(*said[-1].types, ACCEPT))]
        elif kind == 5:
            said = [*said, Said(self.ends[place], self.ends[place] + 2, (ACCEPT,))]
        elif kind == 6 and said:
            said = [*said[:-1], said[-1]._replace(types=(self.random.choice((7, -1, RENEW)),))]
        elif kind == 7 and said:
            first = max(0, said[0].first - self.random.randint(1, 2))
            said = [said[0]._replace(first=first, types=(types[0],)), *said[1:]]
        return sorted(said) if self.steps.happens(0.8) else said

    # Where groups stand

    def describe_offsets(self) -> None:
        bases = self.random.choice((None, list(self.topics), [*self.topics, "nothing"]))
        self.offsets_of(self.random.choice(self.groups), bases)

    def offsets_of(self, group: str, bases: Sequence[str] | None) -> None:
        if self.bases_passed_over:
            # When Kafka writes down that records were deleted or aborted depends on who acknowledges something next.
            bases = [base for base in bases or self.topics if base not in self.bases_passed_over]
        version = self.steps.version(DescribeShareGroupOffsetsRequest)
        wanted = None
        if bases is not None:
            wanted = [
                DescribeShareGroupOffsetsRequestTopic(self.exchange.name(base), list(range(self.topics.get(base, 1))))
                for base in bases
            ]
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(self.exchange.name(group), wanted)]
        )
        self.steps.ask(f"offsets of {group} in {_listed(bases)}", request, version)

    def leave_and_change(self) -> None:
        """Offsets are altered and deleted of groups without members only."""
        group = self.random.choice(self.groups)
        if self.steps.happens(0.85) or not any(member.epoch for member in self.members if member.group == group):
            self.all_leave(group)
        if self.steps.happens(0.6):
            self.alter_offsets(group)
        else:
            self.delete_offsets(group)

    def all_leave(self, group: str) -> None:
        """As consumers do it, which do not keep their connections."""
        for member in self.members:
            if member.group != group:
                continue
            if member.session_epoch is not None and self.steps.happens(0.7):
                request = self.fetch_request(member, CLOSE, [], {})
                version = self.steps.version(ShareFetchRequest)
                self.ask_fetch(member, f"{member.base} closes its session", request, version, {})
            if member.epoch != JOIN:
                self.beat(member, LEAVE, None)
            self.reconnect(member)

    def alter_offsets(self, group: str) -> None:
        altered: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        words = []
        for place in self.random.sample(self.places, self.random.randint(1, len(self.places))):
            offset = self.random.randint(0, self.ends[place] + 1)
            altered.setdefault(place.base, []).append(AlterShareGroupOffsetsRequestPartition(place.partition, offset))
            words.append(f"{place} to {offset}")
            self.loaded[group].discard(place)
        topics = [AlterShareGroupOffsetsRequestTopic(self.exchange.name(base), one) for base, one in altered.items()]
        if self.steps.happens(0.1):
            nothing = AlterShareGroupOffsetsRequestPartition(0, 1)
            topics.append(AlterShareGroupOffsetsRequestTopic(self.exchange.name("nothing"), [nothing]))
            words.append("nothing to 1")
        request = AlterShareGroupOffsetsRequest(self.exchange.name(group), topics)
        reply = self.steps.ask(f"alter {group}: {', '.join(words)}", request, 0)
        if not reply.error_code:
            self.known[group] |= altered.keys()

    def delete_offsets(self, group: str) -> None:
        bases = self.random.sample(list(self.topics), self.random.randint(1, len(self.topics)))
        if self.steps.happens(0.1):
            bases.append("nothing")
        topics = [DeleteShareGroupOffsetsRequestTopic(self.exchange.name(base)) for base in bases]
        request = DeleteShareGroupOffsetsRequest(self.exchange.name(group), topics)
        reply = self.steps.ask(f"delete {group}: {_listed(bases)}", request, 0)
        if not reply.error_code:
            self.known[group] -= set(bases)
            self.loaded[group] -= {place for place in self.places if place.base in bases}

    def delete_group(self) -> None:
        group = self.random.choice(self.groups)
        if self.steps.happens(0.7) or not any(member.epoch for member in self.members if member.group == group):
            self.all_leave(group)
        version = self.steps.version(DeleteGroupsRequest)
        reply = self.steps.ask(f"delete {group}", DeleteGroupsRequest([self.exchange.name(group)]), version)
        if not reply.results[0].error_code:
            self.loaded[group].clear()
            self.known[group].clear()


def ordered_id(random: Random, number: int) -> str:
    """An id of a member that comes behind those with lower numbers, up to 10: sorted, and in Kafka's hash tables."""
    while True:
        member_id = urlsafe_b64encode(bytes([4 * (number + 1)]) + random.randbytes(15)).decode().rstrip("=")
        hashed = 0
        for character in member_id:
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        if (hashed ^ hashed >> 16) & 63 == number:
            return member_id


def _listed(names: Sequence[object] | None) -> str:
    return "all" if names is None else " ".join(map(str, names)) or "nothing new"


def _told(acknowledged: dict[Place, list[Said]]) -> str:
    words = [f"{one} of {place}" for place, said in acknowledged.items() for one in said]
    return f", acknowledges {', '.join(words)}" if words else ""


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
