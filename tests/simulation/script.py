"""What a seed decides before the world begins: the broker's settings, the topics, the clients, the possible faults.

Each world has only some of everything, so that rare combinations come up and no fault hides behind another.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.broker.config import INTERNAL_SEGMENT_BYTES
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.clients.administrator import administrator
from tests.simulation.clients.applications import (
    Habits,
    Play,
    group_reader,
    plain_writer,
    reader,
    transactional_writer,
    transformer,
)
from tests.simulation.clients.libraries import VERSION_1_LIBRARIES, VERSION_2_LIBRARIES, Library
from tests.simulation.clients.recreator import AGAIN, recreator
from tests.simulation.clients.stranger import (
    CHECK_BACK_SETTINGS,
    DECISIONS,
    DOUBTED,
    DOUBTFUL,
    STRANGER,
    doubtful,
    stranger,
)
from tests.simulation.clients.tenant import tenant
from tests.simulation.clients.two_phase import resolver, two_phase_writer
from tests.simulation.engine_cluster import EngineSettings
from tests.simulation.nemesis import (
    NOT_OF_ENGINES,
    NOT_OF_PROCESSES,
    OF_CLUSTERS,
    OF_ENGINES,
    OF_PROCESSES,
    OF_VERSION_2,
    Fault,
)
from tests.simulation.principals import TENANT, security_settings

INPUT: Final = "in"
OUTPUT: Final = "out"
KEYED: Final = "keyed"
SHORT_LIVED: Final = "short-lived"
SCRATCH: Final = "scratch"
LAST_EPOCH: Final = 32766
ODD_SHARE: Final = 0.25
"""Of the worlds of one broker."""
ON_ENGINE_SHARE: Final = 0.6
"""Of the clusters of several machines."""
TRANSFORMERS: Final = "transformers"
READERS: Final = "readers"
KEEPER: Final = "keeper"
NAMED: Final = "named"
RESOLVER: Final = "resolver"
TRANSACTIONAL_WRITERS: Final = ("writer-", "keyed-")


@dataclass
class Topic:
    """A topic of the world. is_recorded: whether the history tells what is written to it."""

    name: str
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)
    is_recorded: bool = True

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in range(self.partition_count)]


@dataclass
class Script:
    """duration_s: how long the applications go about their work before everything is to come to rest.

    epochs: that transactional ids have reached before.
    repeatable: the roles whose requests may arrive once more, later.
    two_phase: the roles that commit in a database, too; each recovers once more when all is over.
    is_secured: whether there are rights, with a tenant whose rights change.
    is_of_processes: whether the brokers are processes of one, on one machine.
    engine: settings of the brokers, where an engine keeps their logs; None where it does not.
    speeds: of their monotonic clocks.
    """

    settings: dict[str, str]
    topics: list[Topic]
    roles: dict[str, Play]
    group_ids: list[str]
    faults: list[Fault]
    duration_s: float
    fault_pause_s: float
    power_loss_probability: float
    transaction_timeout_ms: int
    epochs: dict[str, int]
    node_count: int
    has_version_1: bool
    repeatable: list[str]
    two_phase: list[str] = field(default_factory=list)
    is_secured: bool = False
    is_of_processes: bool = False
    engine: EngineSettings | None = None
    speeds: dict[int, float] = field(default_factory=dict)

    def recorded_partitions(self) -> list[TopicPartition]:
        return [partition for topic in self.topics if topic.is_recorded for partition in topic.partitions()]


def write_script(chance: random.Random) -> Script:
    """The script that a seed's chance leads to."""
    topics = _topics(chance)
    settings = _settings(chance)
    transaction_timeout_ms = chance.choice((3_000, 6_000, 12_000))
    versions = chance.choice(((1,), (2,), (1, 2)))
    libraries: list[Library] = []
    if 1 in versions:
        libraries += VERSION_1_LIBRARIES
    if 2 in versions:
        libraries += VERSION_2_LIBRARIES
    roles = _roles(chance, topics, libraries, transaction_timeout_ms, settings)
    node_count = chance.choice((1, 1, 1, 2, 2, 3))
    impossible: frozenset[Fault] = frozenset()
    if node_count == 1:
        impossible |= OF_CLUSTERS
    if versions != (2,):
        impossible |= OF_VERSION_2
    script = Script(
        settings=settings,
        topics=topics,
        roles=roles,
        group_ids=[
            group_id for group_id in (TRANSFORMERS, READERS) if any(name.startswith(group_id[:-1]) for name in roles)
        ],
        faults=_faults(chance, impossible),
        duration_s=chance.uniform(3.0, 7.5),
        fault_pause_s=chance.choice((0.4, 0.8, 1.6)),
        power_loss_probability=chance.choice((0.0, 0.3, 0.8)),
        transaction_timeout_ms=transaction_timeout_ms,
        epochs=_epochs(chance),
        node_count=node_count,
        has_version_1=1 in versions,
        repeatable=[name for name in roles if name.startswith(TRANSACTIONAL_WRITERS)],
    )
    # Drawn last, so that all else of a seed is as it was before there was this fault.
    if chance.random() < 0.4:
        script.faults.append(Fault.UNFORESEEN)
    # A node does not hear of rules that another one has changed.
    if node_count == 1 and chance.random() < 0.5:
        _secure(script)
    if chance.random() < 0.3:
        _commit_in_two_phases(script, chance, libraries)
    if node_count > 1 and chance.random() < 0.5:
        _share_a_machine(script, chance)
    if node_count > 1 and not script.is_of_processes and chance.random() < ON_ENGINE_SHARE:
        _share_an_engine(script, chance)
    # Brokers without an engine hear of topics as late as a world likes.
    if (node_count == 1 or script.is_of_processes or script.engine is not None) and chance.random() < 0.4:
        script.topics.append(Topic(AGAIN, 1, is_recorded=False))
        script.roles[AGAIN] = recreator(asks_strictly=node_count == 1)
    if node_count == 1 and chance.random() < ODD_SHARE:
        _write_oddly(script)
    return script


def _write_oddly(script: Script) -> None:
    """A broker that checks back, what needs it, and strangers that write into its topics."""
    script.settings |= CHECK_BACK_SETTINGS
    script.topics += [
        Topic(DOUBTED, 1, is_recorded=False),
        Topic(DECISIONS, 1, {"message.timestamp.type": "LogAppendTime"}, is_recorded=False),
    ]
    script.roles[DOUBTFUL] = doubtful()
    script.roles[STRANGER] = stranger()


def _share_a_machine(script: Script, chance: random.Random) -> None:
    """The brokers are processes of one."""
    script.is_of_processes = True
    script.faults = [fault for fault in script.faults if fault not in NOT_OF_PROCESSES]
    script.faults += [fault for fault in OF_PROCESSES if chance.random() < 0.5] or [Fault.CRASH]


def _share_an_engine(script: Script, chance: random.Random) -> None:
    """The brokers are on three machines, and an engine keeps their logs."""
    script.node_count = 3
    script.epochs = {}
    lease_ms = chance.choice((1_500, 3_000))
    script.engine = EngineSettings(
        lease_ms=lease_ms,
        lease_renewal_ms=lease_ms // 3,
        inline_max_bytes=chance.choice((0, 400, 256 * 1024)),
        tail_max_bytes=chance.choice((1_500, 6_000, 128 * 1024 * 1024)),
        scratch_max_bytes=chance.choice((0, 2_000, 10 * 1024**3)),
    )
    script.speeds = {node_id: chance.choice((0.9, 1.0, 1.0, 1.1)) for node_id in (1, 2, 3)}
    script.faults = [fault for fault in script.faults if fault not in NOT_OF_ENGINES]
    also = (*OF_ENGINES, Fault.DRAIN, Fault.DOCUMENT)
    script.faults += [fault for fault in also if chance.random() < 0.4] or [Fault.CRASH]


def _commit_in_two_phases(script: Script, chance: random.Random, libraries: Sequence[Library]) -> None:
    """There are applications that commit in a database, too; a month is nothing to their transactions."""
    settings, roles = script.settings, script.roles
    settings["unstable.api.versions.enable"] = settings["transaction.two.phase.commit.enable"] = "true"
    settings["fencepost.two.phase.transactional.ids"] = f"{NAMED}-*"
    settings["fencepost.two.phase.warn.age.ms"] = "1000"
    topics = [topic for topic in script.topics if topic.name in (INPUT, OUTPUT, SCRATCH)]
    written = [partition for topic in topics for partition in topic.partitions()]
    habits = Habits(
        written,
        unrecorded=frozenset({SCRATCH}),
        batches=2,
        records=2,
        abort_probability=0.15,
        pause_s=(0.01, 0.3),
    )
    kinds = chance.choice(((KEEPER,), (KEEPER,), (NAMED,), (KEEPER, NAMED)))
    library = chance.choice(libraries)
    for kind in kinds:
        roles[kind] = two_phase_writer(
            f"{kind}-0",
            library,
            habits,
            keeps=kind == KEEPER,
            haunts=chance.random() < 0.6,
            has_rival=chance.random() < 0.5,
            transaction_timeout_ms=script.transaction_timeout_ms,
        )
        script.two_phase.append(kind)
    # In any version a late InitProducerId that keeps nothing aborts what was decided after it.
    if not script.has_version_1 and KEEPER in kinds:
        script.repeatable.append(KEEPER)
    if chance.random() < 0.4:
        roles[RESOLVER] = resolver([f"{kind}-0" for kind in kinds], library, overrules=chance.random() < 0.5)
    if script.epochs and KEEPER in kinds:
        script.epochs[f"{KEEPER}-0"] = LAST_EPOCH - chance.randint(0, 8)
    if chance.random() < 0.4:
        script.faults.append(Fault.MONTH)
        # What else is forgotten or deleted after a month would be missed.
        settings["log.retention.ms"] = "-1"
        settings["offsets.retention.minutes"] = str(50 * 365 * 24 * 60)
        settings["producer.id.expiration.ms"] = str(2**31 - 1)
        roles.pop("plain-writer", None)  # that is shorter than a month: a retry after it would not be recognised


def _secure(script: Script) -> None:
    """Everybody may do what they do; and there is a tenant."""
    script.is_secured = True
    script.settings |= security_settings("witness", "broker-1")
    script.topics.append(Topic(TENANT, 1, is_recorded=False))
    victims = [f"writer-{index}" for index in range(3)]
    script.roles[TENANT] = tenant(INPUT, TRANSFORMERS, victims)


def _epochs(chance: random.Random) -> dict[str, int]:
    if chance.random() < 0.75:
        return {}
    transactional_ids = [f"{kind}-{index}" for kind in ("writer", "transformer") for index in range(3)]
    return {
        transactional_id: LAST_EPOCH - chance.randint(0, 12)
        for transactional_id in transactional_ids
        if chance.random() < 0.7
    }


def _settings(chance: random.Random) -> dict[str, str]:
    settings = {
        "transaction.state.log.num.partitions": chance.choice(("1", "3")),
        "offsets.topic.num.partitions": chance.choice(("1", "3")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": chance.choice(("300", "2000")),
        "log.index.interval.bytes": chance.choice(("1", "200", "4096")),
        "log.cleaner.backoff.ms": "1000",
        "log.retention.check.interval.ms": "5000",
        "log.segment.delete.delay.ms": chance.choice(("0", "1000", "60000")),
        "group.initial.rebalance.delay.ms": chance.choice(("0", "500")),
    }
    if chance.random() < 0.3:
        settings["transaction.state.log.segment.bytes"] = str(chance.choice((600, 3_000)))
    if chance.random() < 0.3:
        settings["offsets.topic.segment.bytes"] = str(chance.choice((2_500, 6_000)))
    if chance.random() < 0.4:
        settings["fencepost.start.opening.logs.ms"] = "0"
    if chance.random() < 0.2:
        settings["transactional.id.expiration.ms"] = "4000"
        settings["transaction.remove.expired.transaction.cleanup.interval.ms"] = "1000"
    if chance.random() < 0.15:
        settings["producer.id.expiration.ms"] = "5000"
        settings["log.retention.check.interval.ms"] = "1000"
    if chance.random() < 0.3:
        settings["log.cleaner.delete.retention.ms"] = "2000"
        settings["log.cleaner.min.cleanable.ratio"] = "0.01"
    return settings


def _topics(chance: random.Random) -> list[Topic]:
    small_segments = {}
    if chance.random() < 0.4:
        small_segments = {INTERNAL_SEGMENT_BYTES: str(chance.choice((1_200, 4_000)))}
    topics = [Topic(INPUT, chance.randint(1, 2), small_segments), Topic(OUTPUT, chance.randint(1, 3), small_segments)]
    if chance.random() < 0.3:
        configs = {"cleanup.policy": "compact", INTERNAL_SEGMENT_BYTES: "1500", "min.cleanable.dirty.ratio": "0.01"}
        topics.append(Topic(KEYED, 1, configs))
    if chance.random() < 0.2:
        topics.append(Topic(SHORT_LIVED, 1, {"retention.bytes": "3000", INTERNAL_SEGMENT_BYTES: "1000"}))
    if chance.random() < 0.3:
        topics.append(Topic(SCRATCH, 1, small_segments, is_recorded=False))
    return topics


def _roles(
    chance: random.Random,
    topics: Sequence[Topic],
    libraries: Sequence[Library],
    transaction_timeout_ms: int,
    settings: dict[str, str],
) -> dict[str, Play]:
    by_name = {topic.name: topic for topic in topics}
    written = [partition for topic in topics if not topic.is_compacted for partition in topic.partitions()]
    habits = Habits(
        written,
        unrecorded=frozenset(topic.name for topic in topics if not topic.is_recorded),
        abort_probability=chance.choice((0.1, 0.3, 0.6)),
        idle_probability=chance.choice((0.02, 0.2)),
        pause_s=chance.choice(((0.01, 0.2), (0.1, 0.6))),
    )
    roles: dict[str, Play] = {}
    for index in range(chance.randint(1, 3)):
        library = chance.choice(libraries)
        name = f"writer-{index}-{library.name}"
        roles[name] = transactional_writer(
            f"writer-{index}", library, habits, transaction_timeout_ms=transaction_timeout_ms
        )
    if KEYED in by_name:
        library = chance.choice(libraries)
        keyed = Habits(by_name[KEYED].partitions(), keys=5, abort_probability=habits.abort_probability)
        roles[f"keyed-{library.name}"] = transactional_writer(
            "keyed", library, keyed, transaction_timeout_ms=transaction_timeout_ms
        )
    if chance.random() < 0.4:
        # Where producers are forgotten, a retry that comes too late is not recognised.
        roles["plain-writer"] = plain_writer(
            chance.choice(libraries), habits, is_recognised="producer.id.expiration.ms" not in settings
        )
    if chance.random() < 0.15:
        # Its duplicates are its own business, but would count as inputs that were processed twice.
        careless = Habits(by_name[OUTPUT].partitions(), pause_s=habits.pause_s)
        roles["careless-writer"] = plain_writer(chance.choice(libraries), careless, is_idempotent=False, acks=1)
    if chance.random() < 0.6:
        for index in range(chance.randint(1, 3)):
            library = chance.choice(libraries)
            roles[f"transformer-{index}-{library.name}"] = transformer(
                TRANSFORMERS,
                f"transformer-{index}",
                library,
                [INPUT],
                by_name[OUTPUT].partitions(),
                transaction_timeout_ms=transaction_timeout_ms,
            )
    if chance.random() < 0.3:
        for index in range(chance.randint(1, 2)):
            roles[f"reader-{index}-of-group"] = group_reader(READERS, [OUTPUT, INPUT], "read_committed")
    read = [partition for topic in topics if topic.is_recorded for partition in topic.partitions()]
    roles["committed-reader"] = reader(read, "read_committed")
    if chance.random() < 0.4:
        roles["administrator"] = administrator(
            {topic.name: topic.partition_count for topic in topics}, None if SCRATCH not in by_name else SCRATCH
        )
    if chance.random() < 0.4:
        roles["uncommitted-reader"] = reader(read, "read_uncommitted")
    return roles


def _faults(chance: random.Random, impossible: Collection[Fault]) -> list[Fault]:
    chosen: list[Fault] = [
        fault
        for fault in Fault
        if fault not in impossible
        and fault not in (Fault.UNFORESEEN, Fault.MONTH, *OF_PROCESSES, *OF_ENGINES)
        and chance.random() < (0.7 if fault in OF_CLUSTERS or fault in OF_VERSION_2 else 0.4)
    ]
    return chosen or [Fault.CRASH]
