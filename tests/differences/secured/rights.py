"""Every API as three users with different rights: alice sees some things, bob nothing, carol all but what is hidden."""

from __future__ import annotations

from typing import Final

from tests.differences.exchange import Exchange
from tests.differences.secured.questions import CHANGING, QUESTIONS
from tests.differences.secured.sides import ALICE, BOB, CAROL, USERS
from tests.differences.secured.world import (
    ALL,
    CLUSTER,
    DENY,
    GROUPS,
    OPERATIONS,
    TOPICS,
    TRANSACTIONAL_IDS,
    SecuredWorld,
    rule,
    together,
)

ORDERS: Final = ("seen", "hidden", "missing")


def run(exchange: Exchange) -> None:
    world = SecuredWorld(exchange)
    seen, hidden, missing = world.things("seen"), world.things("hidden"), world.missing()
    by_name = {"seen": seen, "hidden": hidden, "missing": missing}
    name, hidden_name = seen.names[0], hidden.names[0]
    world.set_rules(
        rule(TOPICS, name, OPERATIONS["READ"], ALICE),
        rule(TOPICS, name, OPERATIONS["WRITE"], ALICE),
        rule(GROUPS, name, OPERATIONS["READ"], ALICE),
        rule(TRANSACTIONAL_IDS, name, OPERATIONS["WRITE"], ALICE),
        rule(TOPICS, hidden_name, OPERATIONS["READ"], BOB, host="192.0.2.1"),
        *(rule(kind, "*", ALL, CAROL) for kind in (TOPICS, GROUPS, TRANSACTIONAL_IDS, CLUSTER)),
        *(rule(kind, hidden_name, ALL, CAROL, permission=DENY) for kind in (TOPICS, GROUPS, TRANSACTIONAL_IDS)),
    )
    for user in USERS:
        for first in ORDERS:
            things = together(by_name[first], *(by_name[other] for other in ORDERS if other != first))
            for asked, question in QUESTIONS.items():
                versions = world.versions(question, things)
                for version in versions if first == "seen" else versions[-1:]:
                    world.ask(user, f"{asked}, as {user.user}, {first} first", question, things, version)
    things = together(seen, hidden, missing)
    for user in USERS:
        for asked, question in CHANGING.items():
            for version in world.versions(question, things)[-1:]:
                world.ask(user, f"{asked}, as {user.user}", question, things, version)
                exchange.settle()
    world.set_rules()
