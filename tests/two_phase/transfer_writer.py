"""A process that moves money from an account in PostgreSQL to a topic, transfer by transfer, until it has made COUNT:

    python -m tests.two_phase.transfer_writer CLIENT ADDRESS SERVERS TOPIC ID COUNT

The account is named as the transactional id. A transfer takes its amount from the account's row and adds a record with
the transfer's number and amount to the topic. The exit codes are those of `tests.two_phase.order_writer`.
"""

from __future__ import annotations

import os
import sys

from fencepost.two_phase import HeuristicOutcome, Superseded, TwoPhaseError
from tests.two_phase.databases import Database
from tests.two_phase.order_writer import GAVE_UP, SIDES_DIFFER
from tests.two_phase.sessions import SESSIONS, Session

TABLE = "CREATE TABLE accounts (name text PRIMARY KEY, balance bigint NOT NULL, transfers bigint NOT NULL)"


def amount_of(number: int) -> int:
    """Of each transfer another one, so that a lost one and a doubled one do not add up."""
    return 1 + number * number % 997


def transfer_all(session: Session, count: int) -> None:
    (number,) = session.database.query(
        f"SELECT transfers FROM accounts WHERE name = '{session.transactional_id}'", session.connection
    )[0]
    while number < count:
        number += 1
        with session.transaction():
            session.connection.execute(
                "UPDATE accounts SET balance = balance - %s, transfers = transfers + 1 WHERE name = %s",
                (amount_of(number), session.transactional_id),
            )
            session.send(f"{session.transactional_id} {number} {amount_of(number)}")


def main(client: str, address: str, servers: str, topic: str, name: str, count: str) -> int:
    import aiokafka.errors
    import confluent_kafka
    import kafka.errors

    session = SESSIONS[client](servers, Database("postgres", address), topic, name)
    # Longer than broker and writer are away together, on a machine that is slow: else time ends what is decided.
    session.transaction_timeout_ms = 900_000
    try:
        session.start()
        transfer_all(session, int(count))
    except TwoPhaseError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return SIDES_DIFFER if isinstance(error, (HeuristicOutcome, Superseded)) else GAVE_UP
    except (aiokafka.errors.KafkaError, confluent_kafka.KafkaException, kafka.errors.KafkaError) as error:
        # Of a client that starts, or writes, while the broker is away.
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return GAVE_UP
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # as a process ends that is killed: no client says good-bye
