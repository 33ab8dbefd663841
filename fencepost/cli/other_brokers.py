"""Each command against other brokers than Fencepost, as tried with Apache Kafka 4.4. docs/command-line.md shows it.

A new command needs a row: a test goes through all commands, and runs them against Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class There(NamedTuple):
    """How far a command works there.

    works: False if it refuses with a reason. limits: words on the differences, "" for none.
    """

    works: bool
    limits: str = ""


SAME: Final = There(True)
NO_BROKER: Final = None
"""A command that asks no broker, or is one."""

_RIGHTS: Final = There(True, "refused with SECURITY_DISABLED unless the brokers have an authorizer")
_TOKENS: Final = There(
    True, "refused with DELEGATION_TOKEN_… unless the brokers have tokens and the client has logged in"
)
_OWN_CHOICE: Final = There(False, "only several Fencepost brokers choose leaders by themselves; nothing is changed")
_LETTERS: Final = There(True, "for share groups with a dead-letter topic, from Kafka 4.4 on")

OTHER_BROKERS: Final[Mapping[str, There | None]] = {
    "serve": NO_BROKER,
    "ping": SAME,
    "apis": SAME,
    "cluster check": NO_BROKER,
    "cluster drain": _OWN_CHOICE,
    "cluster export": NO_BROKER,
    "cluster import": NO_BROKER,
    "cluster info": SAME,
    "cluster move": _OWN_CHOICE,
    "cluster nodes": There(True, "without the states leaving and gone, and since when"),
    "cluster partitions": There(True, "without the chosen leader"),
    "cluster restored": NO_BROKER,
    "cluster try": NO_BROKER,
    "topics configs": SAME,
    "topics create": SAME,
    "topics delete": SAME,
    "topics describe": SAME,
    "topics grow": SAME,
    "topics list": SAME,
    "topics trim": SAME,
    "produce": SAME,
    "consume": SAME,
    "groups dead-letters": _LETTERS,
    "groups delete": SAME,
    "groups delete-offsets": SAME,
    "groups describe": SAME,
    "groups export": SAME,
    "groups import": There(
        True, "before Kafka 4.1 the topic's id is compared before the commit, and not by the broker"
    ),
    "groups list": SAME,
    "groups redeliver": _LETTERS,
    "groups reset-offsets": SAME,
    "transactions abort": SAME,
    "transactions abort-hanging": SAME,
    "transactions ask-again": There(True, "beside the service `fencepost check-back`, which asks there"),
    "transactions commit": SAME,
    "transactions describe": SAME,
    "transactions list": SAME,
    "transactions producers": SAME,
    "transactions terminate": There(True, "by the pair of the transaction; the broker has no forced end of a session"),
    "transactions why": There(True, "without the history in the broker's memory, which --broker-http asks for"),
    "two-phase compare": SAME,
    "check-back": SAME,
    "spark finish": SAME,
    "acls add": _RIGHTS,
    "acls list": _RIGHTS,
    "acls remove": _RIGHTS,
    "users list": There(True, "users with SCRAM alone; --data-dir and --users-file are of a Fencepost"),
    "users remove": There(True, "users with SCRAM alone; --data-dir and --users-file are of a Fencepost"),
    "users set": There(True, "users with SCRAM alone; --data-dir and --users-file are of a Fencepost"),
    "tokens create": _TOKENS,
    "tokens expire": _TOKENS,
    "tokens list": _TOKENS,
    "tokens renew": _TOKENS,
    "console": There(True, "without the broker's own metrics and history, which --broker-http asks for"),
    "quotas list": SAME,
    "quotas remove": SAME,
    "quotas set": SAME,
    "configs": SAME,
    "bench": SAME,
    "log dump": NO_BROKER,
    "log repair": NO_BROKER,
    "log restored": NO_BROKER,
    "log verify": NO_BROKER,
    "history check": NO_BROKER,
    "soak": NO_BROKER,
    "test-broker": NO_BROKER,
    "version": NO_BROKER,
    "profile create": NO_BROKER,
    "profile delete": NO_BROKER,
    "profile list": NO_BROKER,
    "profile path": NO_BROKER,
    "profile rename": NO_BROKER,
    "profile set": NO_BROKER,
    "profile show": NO_BROKER,
    "profile use": NO_BROKER,
}


def other_brokers_section() -> str:
    """The section of the page of all commands."""
    same = [name for name, there in OTHER_BROKERS.items() if there == SAME]
    limited = {name: there for name, there in OTHER_BROKERS.items() if there not in (NO_BROKER, SAME)}
    rows = "\n".join(
        f"| `{name}` | {'yes' if there.works else 'no'} | {there.limits} |" for name, there in limited.items() if there
    )
    return (
        "## With Apache Kafka\n\n"
        "All commands that ask a broker are run against Apache Kafka 4.4 by a test. The same as with Fencepost are "
        f"{', '.join(f'`{name}`' for name in same)}.\n\n"
        f"| command | works | |\n|---|---|---|\n{rows}\n\n"
        "A command that does not work there says why, changes nothing, and returns 1. `log` and `cluster check`, "
        "`export`, `import` and `restored` are about files and databases of Fencepost, and refuse others.\n\n"
    )
