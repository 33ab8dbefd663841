"""What lines of a scenario do with brokers on machines of their own, and with the engine that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fencepost.broker.cluster.objects.names import segment_of
from fencepost.broker.cluster.tail.tail_store import TailRow
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from tests.scenarios.runner.arguments import ArgumentError, parse_partition
from tests.scenarios.runner.engine_point import Order
from tests.scenarios.runner.stage import Stage
from tests.scenarios.runner.steps import start, step
from tests.simulation.engine_cluster import EngineCluster, EngineSettings
from tests.simulation.engine_requests import Trouble

SHARED: Final = "brokers 1, 2 and 3 share an engine"
NODE_IDS: Final = (1, 2, 3)
PREFIX: Final = "fencepost.cluster."
LEADS_WITHIN_S: Final = 20.0
POLL_S: Final = 0.05

_TROUBLES: Final = {
    "dies before": Trouble.DIES_BEFORE,
    "dies during": Trouble.DIES_MEANWHILE,
    "dies after": Trouble.DIES_AFTER,
    "freezes before": Trouble.FREEZES_BEFORE,
    "freezes during": Trouble.FREEZES_MEANWHILE,
    "freezes after": Trouble.FREEZES_AFTER,
    "loses its connection before": Trouble.NOT_DONE,
    "loses its connection after": Trouble.ANSWER_LOST,
}
_KINDS: Final = {
    "flush": "commit",
    "seal": "replace",
    "raising of log starts": "raise_log_starts",
    "move": "move",
    "take-over": "take_over",
    "deletion of a topic": "delete_topic",
    "creation of a topic": "create_topic",
    "search for garbage": "find",
    "forgetting of garbage": "removed",
    "put": "put",
    "get": "get",
    "removal": "delete",
    "reading of tails": "read",
}
_REQUEST: Final = rf"the (?:(?P<nth>\d+)(?:st|nd|rd|th) )?(?P<kind>{'|'.join(_KINDS)})(?: of (?P<name>\S+))?"


def _cluster(stage: Stage) -> EngineCluster:
    if stage.engine is None:
        raise ArgumentError("there is no engine")
    return stage.engine


@step(rf"{SHARED}(?: with (?P<settings>.+))?")
async def share_engine(stage: Stage, settings: str) -> list[str]:
    pairs = (word.partition("=") for word in settings.split())
    given = {name: value for name, _, value in pairs}
    fields = {
        name.removeprefix(PREFIX).replace(".", "_"): int(value)
        for name, value in given.items()
        if name.startswith(PREFIX)
    }
    stage.configure({name: value for name, value in given.items() if not name.startswith(PREFIX)})
    stage.share_engine(EngineSettings(**fields))
    for node_id in NODE_IDS:
        stage.machine(node_id)
    return []


@step(r"brokers 1, 2 and 3 start")
async def start_all(stage: Stage) -> list[str]:
    return [line for node_id in NODE_IDS for line in await start(stage, str(node_id), "")]


@step(r"broker (?P<node>\d+) is to lead (?P<partitions>.+)")
async def choose(stage: Stage, node: str, partitions: str) -> list[str]:
    """An operator names the leader of partitions, and waits until it leads them."""
    cluster, node_id = _cluster(stage), int(node)
    names = [parse_partition(word) for word in partitions.split()]
    for name in names:
        cluster.choose(name, node_id)
    await _until_led(stage, names, node_id)
    return []


@step(r"broker (?P<node>\d+) is asked to lead (?P<partitions>.+)")
async def ask_to_lead(stage: Stage, node: str, partitions: str) -> list[str]:
    """An operator names the leader of partitions, and does not wait."""
    for word in partitions.split():
        _cluster(stage).choose(parse_partition(word), int(node))
    return []


async def _until_led(stage: Stage, names: list[TopicPartition], node_id: int) -> None:
    cluster, machine = _cluster(stage), stage.machine(node_id)
    for _ in range(round(LEADS_WITHIN_S / POLL_S)):
        if machine.broker.is_running:
            topics = machine.broker.node.services.topics
            if all(cluster.leader_id(name) == node_id and topics.log(name) is not None for name in names):
                return
        await stage.wait(POLL_S)
    if not stage.is_forgiving:
        raise ArgumentError(f"broker {node_id} does not lead them within {LEADS_WITHIN_S:g} s")


@step(r"broker (?P<node>\d+) (?P<what>freezes|goes on)")
async def freeze(stage: Stage, node: str, what: str) -> list[str]:
    process = stage.machine(int(node)).broker.process
    process.pause() if what == "freezes" else process.resume()
    return []


@step(rf"broker (?P<node>\d+) (?P<what>{'|'.join(_TROUBLES)}) {_REQUEST}")
async def order(stage: Stage, node: str, what: str, nth: str, kind: str, name: str) -> list[str]:
    """From here on the broker waits for this request."""
    host = stage.machine(int(node)).broker.host
    stage.engine_requests.orders.append(Order(_TROUBLES[what], host, _KINDS[kind], name, int(nth or 1)))
    return []


@step(r"the database (?P<what>fails over|is there again|answers nobody|answers again)")
async def trouble_database(stage: Stage, what: str) -> list[str]:
    engine = _cluster(stage).engine
    acts = {
        "fails over": engine.begin_fail_over,
        "is there again": engine.end_fail_over,
        "answers nobody": engine.fall_silent,
        "answers again": engine.speak,
    }
    acts[what]()
    return []


@step(r"news of changes (?P<what>is lost|arrives again)")
async def lose_news(stage: Stage, what: str) -> list[str]:
    _cluster(stage).engine.troubles.lost_news = 1.1 if what == "is lost" else 0.0
    return []


@step(r"the object store (?P<what>refuses everything|works again)")
async def refuse_objects(stage: Stage, what: str) -> list[str]:
    _cluster(stage).engine.objects.is_refusing = what == "refuses everything"
    return []


@step(r"rows of (?P<partition>\S+)")
async def rows(stage: Stage, partition: str) -> list[str]:
    """What the engine has of a partition: who leads it, and which offsets are where."""
    cluster, name = _cluster(stage), parse_partition(partition)
    key, row = cluster.key(name), cluster.row(name)
    if key is None or row is None:
        return ["none"]
    tables = cluster.engine.rows
    tail = tables.tail(key)
    places: dict[str, Sequence[RemoteSegmentMetadata | TailRow]] = {
        "sealed": list(tables.segments.get(key, {}).values()),
        "in rows": [one for one in tail if one.object_id is None],
        "in objects of flushes": [one for one in tail if one.object_id is not None],
    }
    line = f"led by broker {row.leader}, from {row.log_start_offset}"
    for where, parts in places.items():
        spans = sorted((one.base_offset, one.end_offset - 1) for one in parts)
        if spans:
            line += f", {where} {' '.join(f'{first}-{last}' for first, last in spans)}"
    return [line]


@step(r"objects")
async def objects(stage: Stage) -> list[str]:
    """How many are stored, and how many of them no row names."""
    engine = _cluster(stage).engine
    named = engine.rows.named_objects()
    counts = Counter("segments" if segment_of(name) is not None else "flushes" for name in engine.objects.objects)
    unnamed = [name for name in engine.objects.objects if name not in named]
    stored = f"{counts['flushes']} of flushes, {counts['segments']} of segments"
    return [f"{stored}; no row names {len(unnamed)}, and {len(engine.rows.garbage)} are to be removed"]
