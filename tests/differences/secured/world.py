"""What a secured comparison begins with: rules, and things of every kind that are seen, hidden and missing."""

from __future__ import annotations

from typing import Any, Final

from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from tests.differences.connection import Connection, Login
from tests.differences.exchange import GROUP, TRANSACTION, Exchange, batch
from tests.differences.secured.questions import Question, Things

TOPICS, GROUPS, CLUSTER, TRANSACTIONAL_IDS = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ANY: Final = 1
ALL: Final = 2
OPERATIONS: Final = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "TWO_PHASE_COMMIT": 15,
}
KINDS: Final = {"topic": TOPICS, "group": GROUPS, "cluster": CLUSTER, "transactional id": TRANSACTIONAL_IDS}
TIMEOUT_MS: Final = 60_000


def rule(
    kind: int,
    name: str,
    operation: int,
    login: Login | None,
    *,
    permission: int = ALLOW,
    pattern: int = LITERAL,
    host: str = "*",
) -> AclCreation:
    """A rule for a user, or for everybody; allowing, unless it says otherwise."""
    principal = "User:*" if login is None else f"User:{login.user}"
    return AclCreation(
        kind, "kafka-cluster" if kind == CLUSTER else name, pattern, principal, host, operation, permission
    )


class SecuredWorld:
    """An exchange whose own connection is the super user's, with one more for each user."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._connections: dict[Login, Connection] = {}
        self._kept = ""
        exchange.find_coordinator(exchange.name("any"), GROUP)
        exchange.find_coordinator(exchange.name("any"), TRANSACTION)
        # Nobody is to be producer 0, which would be left out where it is the default.
        exchange.call(InitProducerIdRequest(None, TIMEOUT_MS), 4)

    # Rules

    def set_rules(self, *rules: AclCreation) -> None:
        """These and no others are in force from now on."""
        self.exchange.call(DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]), 3)
        self.add_rules(*rules)

    def add_rules(self, *rules: AclCreation) -> None:
        if rules:
            reply = self.exchange.call(CreateAclsRequest(list(rules)), 3)
            assert not any(result.error_code for result in reply.results), reply
        self.exchange.settle()

    # Things

    def things(self, *bases: str, version: int | None = None) -> Things:
        """Of each name a topic with a record, a group with offsets, and a transactional id.

        The group has an offset of a topic that nobody deletes: Kafka keeps a group without offsets for a while.
        """
        exchange, made = self.exchange, Things([], [], [])
        if not self._kept:
            self._kept = exchange.create_topic("kept")
        for base in bases:
            name = exchange.create_topic(base, version=version)
            exchange.fill(name, batch(1))
            made.topics.append((name, exchange.topic_id(name)))
            committed = OffsetCommitRequest(
                group_id=name,
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])
                    for topic in (name, self._kept)
                ],
            )
            exchange.call(committed, 9)
            made.groups.append(name)
            exchange.call(InitProducerIdRequest(name, TIMEOUT_MS), 4)
            made.transactional_ids.append(name)
        return made

    def missing(self, base: str = "missing", version: int | None = None) -> Things:
        """A topic, a group and a transactional id that do not exist."""
        name, topic_id = self.exchange.name(base, version), base.encode().ljust(16, b"\x07")
        self.exchange.remember(topic_id, f"the id that {base} does not have")
        return Things([(name, topic_id)], [name], [name])

    # Questions

    def ask(self, login: Login, situation: str, question: Question, things: Things, version: int) -> Any:
        """What a user is answered."""
        return self.send(login, situation, question.request(things), version, question)

    def send(self, login: Login, situation: str, request: Any, version: int, question: Question | None = None) -> Any:
        connection = self._connections.get(login)
        if connection is None:
            connection = self._connections[login] = self.exchange.connect(login)
        only = None if question is None else question.comparable(self.exchange)
        retry = () if question is None else question.retry
        reply = self.exchange.ask(situation, request, version, connection=connection, only=only, retry=retry)
        if reply is None:
            self._connections.pop(login).close()
        return reply

    def versions(self, question: Question, things: Things) -> range:
        first, last = question.versions
        return self.exchange.versions(type(question.request(things)), lowest=first, highest=last)


def together(*parts: Things) -> Things:
    """All of them, in this order."""
    return Things(
        [topic for part in parts for topic in part.topics],
        [group for part in parts for group in part.groups],
        [transactional_id for part in parts for transactional_id in part.transactional_ids],
    )
