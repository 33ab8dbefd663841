"""Every API as a user with one single right: which rights does each API take, and what does each let through?"""

from __future__ import annotations

from typing import Final

from tests.differences.exchange import Exchange
from tests.differences.secured.questions import CHANGING, QUESTIONS
from tests.differences.secured.sides import ALICE
from tests.differences.secured.world import KINDS, OPERATIONS, SecuredWorld, rule, together

MEANINGFUL: Final = {
    "topic": (
        "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
        "CLUSTER_ACTION",
    ),
    "group": ("ALL", "READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "cluster": (
        "ALL", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ),
    "transactional id": ("ALL", "WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"),
}  # fmt: skip


def run(exchange: Exchange) -> None:
    world = SecuredWorld(exchange)
    number = 0
    for kind, operations in MEANINGFUL.items():
        for operation in operations:
            number += 1
            seen, missing = world.things("seen", version=number), world.missing(version=number)
            world.set_rules(rule(KINDS[kind], seen.names[0], OPERATIONS[operation], ALICE))
            things = together(seen, missing)
            for asked, question in QUESTIONS.items():
                version = world.versions(question, things)[-1:]
                for last in version:
                    world.ask(ALICE, f"{asked}, with {operation} on {kind}", question, things, last)
            for asked, question in CHANGING.items():
                for last in world.versions(question, things)[-1:]:
                    world.ask(ALICE, f"{asked}, with {operation} on {kind}", question, things, last)
                    exchange.settle()
    world.set_rules()
