"""One commit over a database and a log, with the clients that people have: confluent-kafka, kafka-python and aiokafka.

A transaction is prepared when its records are flushed and its token is known. The token goes into the application's
own database transaction, and a process that finds it there can end the records' transaction. Works with every Kafka;
docs/two-phase.md has the basis of each guarantee. Imports no broker.
"""

from fencepost.two_phase.commit import (
    recover,
    recover_async,
    start_session,
    start_session_async,
    transaction,
    transaction_async,
)
from fencepost.two_phase.commit_ids import Commit
from fencepost.two_phase.coordinator import AsyncCoordinator, Coordinator
from fencepost.two_phase.logs import PostgresLog, PreparedLog, SqliteLog
from fencepost.two_phase.preparing import confluent_producer, prepare, prepare_async
from fencepost.two_phase.tokens import (
    Fenced,
    HeuristicOutcome,
    InDoubt,
    InDoubtError,
    MisuseError,
    NeedsRecovery,
    NotPrepared,
    Outcome,
    Refused,
    Superseded,
    Token,
    TwoPhaseError,
    WeakDatabase,
)

__all__ = [
    "AsyncCoordinator",
    "Commit",
    "Coordinator",
    "Fenced",
    "HeuristicOutcome",
    "InDoubt",
    "InDoubtError",
    "MisuseError",
    "NeedsRecovery",
    "NotPrepared",
    "Outcome",
    "PostgresLog",
    "PreparedLog",
    "Refused",
    "SqliteLog",
    "Superseded",
    "Token",
    "TwoPhaseError",
    "WeakDatabase",
    "confluent_producer",
    "prepare",
    "prepare_async",
    "recover",
    "recover_async",
    "start_session",
    "start_session_async",
    "transaction",
    "transaction_async",
]
