"""Rules made up from a seed, changed again and again, and requests of three users in between.

Rules name things literally, by a prefix or all of a kind; for one user or for everybody, from one address or from all;
they allow and deny.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from fencepost.protocol.messages.acls import AclCreation, DeleteAclsFilter, DeleteAclsRequest, DescribeAclsRequest
from tests.differences.connection import Login
from tests.differences.exchange import Exchange
from tests.differences.secured.questions import CHANGING, QUESTIONS, Things
from tests.differences.secured.sides import ADMIN, USERS
from tests.differences.secured.world import (
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    KINDS,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    SecuredWorld,
    rule,
    together,
)

BASES: Final = ("aa", "ab", "b.c")
MISSING: Final = ("ac", "d")
PREFIXES: Final = ("a", "aa", "ab", "b", "b.", "d", "x")
HOSTS: Final = ("*", "*", "*", "*", "127.0.0.1", "192.0.2.1")
ROUNDS_COUNT: Final = 6
QUESTIONS_PER_ROUND: Final = 35
MATCH: Final = 2
NOT_ASKED: Final = ("AddPartitionsToTxn of a broker",)
"""Fencepost does not serve it to clients; what is asked must not depend on that."""
LATEST_ACLS: Final = 3


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.world = SecuredWorld(exchange)
        self.exchange = exchange
        self.random = random
        self.steps_count = 0
        self.things = [self.world.things(base) for base in BASES] + [self.world.missing(base) for base in MISSING]

    def run(self) -> None:
        for number in range(ROUNDS_COUNT):
            rules = [self.some_rule() for _ in range(self.random.randint(1, 9))]
            if number % 2:
                self.world.add_rules(*rules)
            else:
                self.world.set_rules(*rules)
            for _ in range(QUESTIONS_PER_ROUND):
                chosen = self.random.random()
                if chosen < 0.04:
                    self.ask(CHANGING, changes=True)
                elif chosen < 0.07:
                    self.describe_rules()
                elif chosen < 0.09:
                    self.delete_rules()
                else:
                    self.ask(QUESTIONS)
        self.world.set_rules()

    # Rules

    def some_rule(self) -> AclCreation:
        random = self.random
        kind = random.choice([*KINDS.values()])
        pattern, name = LITERAL, "*"
        chosen = random.random()
        if kind != CLUSTER and chosen > 0.15:
            if chosen < 0.6:
                name = self.exchange.name(random.choice(BASES + MISSING))
            else:
                pattern, name = PREFIXED, random.choice(PREFIXES)
        login: Login | None = random.choice([*USERS, *USERS, None])
        return rule(
            kind,
            name,
            random.choice([*OPERATIONS.values()]),
            login,
            permission=ALLOW if random.random() < 0.75 else DENY,
            pattern=pattern,
            host=random.choice(HOSTS),
        )

    def some_filter(self) -> tuple[Any, ...]:
        random = self.random
        return (
            random.choice([ANY, ANY, *KINDS.values()]),
            random.choice([None, None, self.exchange.name(random.choice(BASES)), "a", "*", "kafka-cluster"]),
            random.choice([ANY, ANY, MATCH, MATCH, LITERAL, PREFIXED]),
            random.choice([None, None, "User:alice", "User:*"]),
            random.choice([None, None, None, "*", "127.0.0.1"]),
            random.choice([ANY, ANY, ANY, *OPERATIONS.values()]),
            random.choice([ANY, ANY, ALLOW, DENY]),
        )

    def describe_rules(self) -> None:
        chosen = self.some_filter()
        login = self.random.choice([ADMIN, *USERS])
        self.say(login, f"describe {chosen}", DescribeAclsRequest(*chosen), LATEST_ACLS)

    def delete_rules(self) -> None:
        filters = [self.some_filter() for _ in range(self.random.randint(1, 2))]
        login = self.random.choice([ADMIN, ADMIN, *USERS])
        self.say(login, f"delete {filters}", DeleteAclsRequest([DeleteAclsFilter(*one) for one in filters]), 3)
        self.exchange.settle()

    # Requests

    def ask(self, questions: Any, *, changes: bool = False) -> None:
        random = self.random
        asked = random.choice([name for name in questions if name not in NOT_ASKED])
        question = questions[asked]
        things: Things = together(*random.sample(self.things, random.randint(1, len(self.things))))
        versions = self.world.versions(question, things)
        if not versions:
            return
        login, version = random.choice(USERS), random.choice(versions)
        self.steps_count += 1
        named = ", ".join(name.partition("-")[0] for name in things.names)
        self.world.ask(login, f"{self.steps_count} {asked} as {login.user}: {named}", question, things, version)
        if changes:
            self.exchange.settle()

    def say(self, login: Login, description: str, request: Any, version: int) -> None:
        self.steps_count += 1
        situation = f"{self.steps_count} {login.user}: {self.exchange.plain_text(description)}"
        self.world.send(login, situation, request, version)
