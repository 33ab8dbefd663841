"""Plan of a soak, which all its processes read: kinds of clients, their roles and names, topics, rates and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

KINDS = ("kafka-python", "confluent", "java")
TWO_PHASE_KINDS = ("confluent", "kafka-python", "aiokafka")
INPUT_PARTITIONS_COUNT = 3
OUTPUTS_TOPIC, OUTPUT_PARTITIONS_COUNT = "outputs", 4
TRANSFERS_TOPIC, TRANSFERS_PARTITIONS_COUNT = "transfers", 3

TRANSACTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 6_000  # of group members; the minimum of a broker by default
RECORDS_PER_TRANSACTION_LIMIT = (
    5  # of a producer; a transformer takes the records of one poll, up to POLL_RECORDS_LIMIT
)
POLL_RECORDS_LIMIT = 20
POLL_TIMEOUT_S = 0.2
COMMIT_SHARE = 0.8  # of the transactions of producers; the others are aborted
TRANSFORMER_COMMIT_SHARE = 0.9
DAWDLING_SHARE = 0.02  # of transactions take up to DAWDLING_S longer, so that crashes meet open ones
DAWDLING_S = 1.5
VERIFIER_REREAD_LIMIT = 500  # offsets before the end from which a new verifier begins, at most
RETRY_TIMEOUT_S = 45.0  # the time-out of a call that can only be repeated; its session ends with it

INTERNAL_TOPICS = {"__transaction_state": 5, "__consumer_offsets": 5}  # with their partitions

# Settings that make the broker often roll, clean and abort timed-out transactions.
BROKER_SETTINGS = {
    "log.segment.bytes": str(2 * 1024 * 1024),
    "transaction.state.log.num.partitions": str(INTERNAL_TOPICS["__transaction_state"]),
    "transaction.state.log.segment.bytes": str(1024 * 1024),
    "offsets.topic.num.partitions": str(INTERNAL_TOPICS["__consumer_offsets"]),
    "offsets.topic.segment.bytes": str(1024 * 1024),
    "log.cleaner.backoff.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

# Settings that make brokers of a cluster of machines often write objects and seal segments.
MACHINE_SETTINGS = {
    **BROKER_SETTINGS,
    "log.segment.bytes": str(1024 * 1024),
    "transaction.state.log.segment.bytes": str(128 * 1024),
    "offsets.topic.segment.bytes": str(128 * 1024),
    "fencepost.cluster.inline.max.bytes": "2048",
    "fencepost.cluster.tail.max.bytes": str(1024 * 1024),
    "fencepost.cluster.scratch.max.bytes": str(4 * 1024 * 1024),
    # After a promotion there is a standby that commits do not wait for yet. It is promoted only once they do.
    "fencepost.cluster.asynchronous.standby.accepted": "true",
}

TWO_PHASE_SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "fencepost.two.phase.transactional.ids": "*",
}


class ExitCode(IntEnum):
    """Exit codes of client processes."""

    STOPPED = 0  # after SIGTERM
    FAILED = 1  # a bug of the soak or of the client; its log has the trace
    FENCED = 3  # another producer has its transactional id, or its transaction timed out
    SESSION_LOST = 4  # its producer is unusable; a new one is needed


class Partition(NamedTuple):
    topic: str
    number: int


class Slot(NamedTuple):
    """A slot for one client process at a time; its name is the transactional id of transactional ones."""

    kind: str
    role: str  # producer, transformer, verifier; or service
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.role}-{self.number}"

    @property
    def is_transactional(self) -> bool:
        return self.role != "verifier"


@dataclass(frozen=True, slots=True)
class Plan:
    """kinds: names of client libraries. rate: transactions/s of all clients together. process_count: the broker's.

    machine_count: brokers of a cluster of machines; 0: the broker is alone. is_two_phase: all clients are services that
    commit over a database and a topic.
    """

    kinds: Sequence[str]
    rate: float
    seed: int
    process_count: int = 1
    machine_count: int = 0
    producers_count: int = 2  # of each kind
    transformers_count: int = 2
    verifiers_count: int = 1
    is_two_phase: bool = False
    services_count: int = 1

    @property
    def broker_settings(self) -> dict[str, str]:
        settings = MACHINE_SETTINGS if self.machine_count else BROKER_SETTINGS
        return {**settings, **(TWO_PHASE_SETTINGS if self.is_two_phase else {})}

    def slots(self) -> list[Slot]:
        counts = (
            {"service": self.services_count}
            if self.is_two_phase
            else {
                "producer": self.producers_count,
                "transformer": self.transformers_count,
                "verifier": self.verifiers_count,
            }
        )
        return [
            Slot(kind, role, number)
            for kind in self.kinds
            for role, count in counts.items()
            for number in range(1, count + 1)
        ]

    @property
    def rate_of_each(self) -> float:
        """Transactions per second of one transactional client."""
        return self.rate / sum(slot.is_transactional for slot in self.slots())

    def topics(self) -> dict[str, int]:
        """The topics, and the number of partitions of each."""
        if self.is_two_phase:
            return {TRANSFERS_TOPIC: TRANSFERS_PARTITIONS_COUNT}
        return {
            **{inputs_topic(kind): INPUT_PARTITIONS_COUNT for kind in self.kinds},
            OUTPUTS_TOPIC: OUTPUT_PARTITIONS_COUNT,
        }

    def inputs(self) -> list[Partition]:
        """The topics that producers write to."""
        return [
            Partition(inputs_topic(kind), number) for kind in self.kinds for number in range(INPUT_PARTITIONS_COUNT)
        ]

    def partitions(self) -> list[Partition]:
        return [Partition(topic, number) for topic, count in self.topics().items() for number in range(count)]

    def all_partitions(self) -> list[Partition]:
        """The partitions of all topics, those of the coordinators included."""
        internal = [Partition(topic, number) for topic, count in INTERNAL_TOPICS.items() for number in range(count)]
        return [*self.partitions(), *internal]


def inputs_topic(kind: str) -> str:
    """The topic that the group of this kind consumes; producers of all kinds write to it."""
    return f"inputs-{kind}"


def group_id(kind: str) -> str:
    return f"{kind}-transformers"
