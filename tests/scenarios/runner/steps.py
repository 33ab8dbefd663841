"""What each line of a scenario does. A step is a pattern and a function; `README.md` lists them all."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.network.server import StartError
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.record_batch import build_batch, read_records
from fencepost.protocol.stored.transaction_state import decode_transaction_log_value, encode_transaction_log_value
from tests.scenarios.runner import admin_requests, close_views, requests, views
from tests.scenarios.runner.arguments import ArgumentError, Arguments, Identity, parse_partition
from tests.scenarios.runner.faults import Effect, Fault, Survival
from tests.scenarios.runner.party import DISCONNECTED, Call, Party, Request
from tests.scenarios.runner.stage import TRANSITIONS, UNDER_WAY_S, Stage
from tests.simulation.client import Disconnected
from tests.simulation.disk import Operation
from tests.simulation.loop import START_MS

REQUESTS: dict[str, Request] = {
    request.__class__.__name__: request
    for request in (
        requests.InitProducerId(),
        requests.AddPartitionsToTxn(),
        requests.AddOffsetsToTxn(),
        requests.Produce(),
        requests.TxnOffsetCommit(),
        requests.EndTxn(),
        requests.OffsetCommit(),
        requests.OffsetFetch(),
        requests.FindCoordinator(),
        admin_requests.CreateTopic(),
        admin_requests.DeleteTopic(),
        admin_requests.DeleteRecords(),
        admin_requests.Metadata(),
        admin_requests.WriteTxnMarkers(),
        admin_requests.DescribeTransactions(),
        admin_requests.ListTransactions(),
        admin_requests.DescribeProducers(),
    )
}

Perform = Callable[..., Awaitable[list[str]]]
_STEPS: list[tuple[re.Pattern[str], Perform]] = []

_KINDS = {
    "append": "append",
    "sync": "sync",
    "write": "write_file",
    "rename": "rename",
    "delete": "delete",
    "truncation": "truncate",
    "making": "open",
    "change": "metadata",
}
_BROKER = r"(?:the )?broker(?: (?P<node>\d+))?"
_WHERE = (
    r"(?P<when>before|after) the (?:(?P<nth>\d+)(?:st|nd|rd|th) )?"
    rf"(?P<kind>{'|'.join(_KINDS)}) (?:to|of) (?P<path>.+)"
)
_UNITS_S = {"ms": 0.001, "s": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def step(pattern: str) -> Callable[[Perform], Perform]:
    def register(perform: Perform) -> Perform:
        _STEPS.append((re.compile(pattern), perform))
        return perform

    return register


async def perform(stage: Stage, text: str) -> list[str]:
    """Do what a line says; returns what came of it. Raises ArgumentError for a line that is not of the language."""
    stage.forget_the_dead()
    for pattern, function in _STEPS:
        found = pattern.fullmatch(text)
        if found is not None:
            return await function(stage, **{name: value or "" for name, value in found.groupdict().items()})
    raise ArgumentError("no step reads like this")


def _node(number: str) -> int:
    return int(number or 1)


# Brokers


@step(rf"{_BROKER} starts(?: with (?P<settings>.+))?")
async def start(stage: Stage, node: str, settings: str) -> list[str]:
    if settings:
        pairs = (word.partition("=") for word in settings.split())
        stage.configure({name: value for name, _, value in pairs})
    machine = stage.machine(_node(node))
    if stage.is_forgiving:
        await stage.bring_up(machine)
        return []
    if machine.broker.is_running:
        raise ArgumentError("it is running")
    try:
        return [] if await machine.start() else ["died while it started"]
    except (StartError, StorageError) as error:
        return [f"does not start: {error}"]


@step(r"brokers 1 and 2 start(?: with (?P<settings>.+))?")
async def start_cluster(stage: Stage, settings: str) -> list[str]:
    stage.make_cluster()
    return await start(stage, "1", settings) + await start(stage, "2", "")


@step(r"broker (?P<node>\d+) (?P<what>leads|takes over) (?P<partition>\S+)")
async def lead(stage: Stage, node: str, what: str, partition: str) -> list[str]:
    stage.move(parse_partition(partition), int(node))
    await stage.wait(UNDER_WAY_S)
    return []


@step(r"nobody leads (?P<partition>\S+)")
async def lead_nothing(stage: Stage, partition: str) -> list[str]:
    stage.move(parse_partition(partition), None)
    return []


@step(r"broker (?P<node>\d+) (?P<what>is not told who leads|hears who leads)")
async def lag(stage: Stage, node: str, what: str) -> list[str]:
    view = stage.view(int(node))
    if view is not None:
        view.pause_updates() if what.startswith("is not") else view.catch_up()
    await stage.wait(UNDER_WAY_S)
    return []


@step(r"brokers (?P<node>\d+) and (?P<other>\d+) (?P<what>cannot reach each other|reach each other again)")
async def separate(stage: Stage, node: str, other: str, what: str) -> list[str]:
    network, hosts = stage.world.network, (f"broker-{node}", f"broker-{other}")
    network.separate(*hosts) if what.startswith("cannot") else network.join(*hosts)
    return []


@step(r"a message between brokers (?P<node>\d+) and (?P<other>\d+) takes (?P<count>\d+) ms")
async def delay(stage: Stage, node: str, other: str, count: str) -> list[str]:
    hosts = frozenset((f"broker-{node}", f"broker-{other}"))
    stage.world.network.latency_between_s[hosts] = int(count) / 1000
    return []


@step(rf"{_BROKER} stops")
async def stop(stage: Stage, node: str) -> list[str]:
    machine = stage.machine(_node(node))
    if stage.is_forgiving and not machine.broker.is_running:
        return []
    try:
        return [] if await machine.broker.stop() else ["died while it stopped"]
    except StorageError:
        # The process ends all the same, with an error; what it did not write is as after a crash.
        if not stage.is_forgiving:
            raise
        machine.kill()
        return []


@step(rf"{_BROKER} is killed")
async def kill(stage: Stage, node: str) -> list[str]:
    stage.machine(_node(node)).kill()
    return []


@step(
    rf"{_BROKER} loses power(?:, (?P<survival>nothing|half of the next write|everything) that was not synced survives)?"
)
async def lose_power(stage: Stage, node: str, survival: str) -> list[str]:
    stage.machine(_node(node)).kill(power_loss=True, survival=_survival(survival))
    return []


def _survival(words: str) -> Survival:
    return {"half of the next write": Survival.TORN, "everything": Survival.EVERYTHING}.get(words, Survival.NOTHING)


@step(rf"{_BROKER} (?P<effect>dies|loses power|fails) {_WHERE}")
async def arm(stage: Stage, node: str, effect: str, when: str, nth: str, kind: str, path: str) -> list[str]:
    effects = {"dies": Effect.DIE, "loses power": Effect.LOSE_POWER, "fails": Effect.FAIL}
    if effect == "fails" and when == "after":
        raise ArgumentError("an operation that fails has not been done: say `before`")
    fault = Fault(effects[effect], _KINDS[kind], path, int(nth or 1), is_before=when == "before")
    stage.machine(_node(node)).faults.armed.append(fault)
    return []


@step(r"the disk(?: of broker (?P<node>\d+))? (?P<state>is full|has room again)")
async def fill_disk(stage: Stage, node: str, state: str) -> list[str]:
    stage.machine(_node(node)).faults.is_disk_full = state == "is full"
    return []


@step(r"a sync takes (?P<count>\d+) ms")
async def slow_down(stage: Stage, count: str) -> list[str]:
    for machine in stage.machines.values():
        machine.broker.sync_latency_s = (int(count) / 1000, int(count) / 1000)
    return []


@step(r"wait (?P<count>[\d.]+) (?P<unit>ms|s|minutes|hours|days)")
async def wait(stage: Stage, count: str, unit: str) -> list[str]:
    await stage.wait(float(count) * _UNITS_S[unit])
    return []


@step(r"(?P<what>\S+) of (?P<partition>\S+) (?P<damage>is removed|is damaged|loses its last (?P<size>\d+) bytes)")
async def damage(stage: Stage, what: str, partition: str, damage: str, size: str) -> list[str]:
    """Behind the broker's back, to the newest file of a partition that ends like this."""
    disk = stage.machine().broker.disk
    topic_partition = parse_partition(partition)
    found = list(views.files(disk, topic_partition, what))
    if not found:
        if stage.is_forgiving:
            return []
        raise ArgumentError(f"{partition} has no {what}")
    offset, content = found[-1]
    path = f"{views.partition_path(topic_partition)}/{offset:020d}{what}"
    if damage == "is removed":
        disk.before = disk.after = None
        disk.delete(path) if stage.machine().broker.is_running else disk.restarted(None, power_loss=False).delete(path)
    elif damage == "is damaged":
        middle = len(content) // 2
        disk.replace_content(path, content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    else:
        disk.replace_content(path, content[: -int(size)])
    return []


@step(r"(?P<transactional_id>\S+) has come to epoch (?P<epoch>\d+)")
async def raise_epoch(stage: Stage, transactional_id: str, epoch: str) -> list[str]:
    """As if it had ended a number of transactions: append a record of it to the log of the broker that is down.

    The party that uses this transactional id learns of it.
    """
    if stage.is_forgiving:
        return []
    stage.broken_by_hand.add(TRANSITIONS)
    topic_partition = requests.coordinator_partition(stage, transactional_id)
    disk = stage.machine(stage.leader_id(topic_partition)).broker.disk
    batches = views.stored_batches(disk, topic_partition)
    header = batches[-1].header
    record = next(read_records(batches[-1]))
    assert record.key is not None
    assert record.value is not None
    stored = decode_transaction_log_value(record.value)
    assert stored is not None
    stored.producer_epoch = int(epoch)
    batch = build_batch(
        [record._replace(value=encode_transaction_log_value(stored))],
        base_offset=header.last_offset + 1,
        partition_leader_epoch=header.partition_leader_epoch,
    )
    base_offset, content = list(views.files(disk, topic_partition, ".log"))[-1]
    disk.replace_content(f"{views.partition_path(topic_partition)}/{base_offset:020d}.log", content + bytes(batch))
    for party in stage.parties.values():
        if party.transactional_id == transactional_id:
            party.became(Identity(stored.producer_id, int(epoch)))
    return []


@step(r"another broker takes the producer ids up to (?P<last>\d+)(?P<when>, just before this one takes some)?")
async def take_producer_ids(stage: Stage, last: str, when: str) -> list[str]:
    """In the metadata that they share, as blocks of ids are taken."""
    broker = stage.machine().broker
    if not when:
        broker.store.take_producer_ids(int(last))
        return []
    before = broker.before
    assert before is not None

    def interfere(operation: Operation) -> None:
        before(operation)
        if operation.kind == "metadata" and "producer_id_block" in operation.path:
            broker.before = before
            broker.store.take_producer_ids(int(last))

    broker.before = interfere
    return []


# Parties


@step(r"(?P<name>[\w-]+) speaks transaction version (?P<version>[12])(?: as (?P<transactional_id>\S+))?")
async def introduce(stage: Stage, name: str, version: str, transactional_id: str) -> list[str]:
    stage.parties[name] = Party(
        stage, name, transactional_id=transactional_id or name, transaction_version=int(version)
    )
    return []


@step(r"(?P<name>[\w-]+) is not transactional")
async def introduce_plain(stage: Stage, name: str) -> list[str]:
    stage.parties[name] = Party(stage, name, transactional_id=None)
    return []


def _party(stage: Stage, name: str) -> Party:
    party = stage.parties.get(name)
    if party is None:
        # A party that sends only an operator's requests needs no introduction.
        party = stage.parties[name] = Party(stage, name, transactional_id=None)
    return party


def _call(stage: Stage, name: str, api: str, words: str) -> Call:
    request = REQUESTS.get(api)
    if request is None:
        raise ArgumentError(f"{api} is none of {', '.join(REQUESTS)}")
    return request.make(_party(stage, name), Arguments(words))


@step(r"(?P<name>[\w-]+): (?P<api>[A-Z]\w+)(?: (?P<words>.+))?")
async def ask(stage: Stage, name: str, api: str, words: str) -> list[str]:
    return await _party(stage, name).ask(_call(stage, name, api, words))


@step(r"(?P<name>[\w-]+) sends: (?P<api>[A-Z]\w+)(?: (?P<words>.+))?")
async def send(stage: Stage, name: str, api: str, words: str) -> list[str]:
    await _party(stage, name).send(_call(stage, name, api, words))
    return []


@step(r"(?P<name>[\w-]+) receives")
async def receive(stage: Stage, name: str) -> list[str]:
    if stage.is_forgiving and not _party(stage, name).is_waiting:
        return []
    return await _party(stage, name).receive()


@step(r"(?P<name>[\w-]+) repeats (?P<api>[A-Z]\w+)(?: at broker (?P<node>\d+))?")
async def repeat(stage: Stage, name: str, api: str, node: str) -> list[str]:
    """The same bytes once more: a retry, or a copy that was late."""
    party = _party(stage, name)
    call = party.last.get(api)
    if call is None:
        raise ArgumentError(f"{name} has sent no {api}")
    if node:
        call.to = int(node)
    return await party.ask(call)


@step(r"(?P<name>[\w-]+) hangs up")
async def hang_up(stage: Stage, name: str) -> list[str]:
    await _party(stage, name).give_up()
    return []


# Looking


@step(r"(?P<isolation>read_committed|read_uncommitted) reads (?P<partitions>[^ ].*?)(?: from (?P<offset>\d+))?")
async def read(stage: Stage, isolation: str, partitions: str, offset: str) -> list[str]:
    level = views.READ_COMMITTED if isolation == "read_committed" else 0
    names = partitions.split()
    lines = []
    for name in names:
        reading = await _reading(stage, parse_partition(name), level, int(offset or 0))
        if reading is None:
            line = DISCONNECTED
        elif reading.error:
            line = reading.error.name
        else:
            line = " ".join(str(delivered.record) for delivered in reading.delivered) or "nothing"
        lines.append(line if len(names) == 1 else f"{name}: {line}")
    return lines


@step(r"offsets of (?P<partition>\S+)")
async def offsets(stage: Stage, partition: str) -> list[str]:
    reading = await _reading(stage, parse_partition(partition), views.READ_COMMITTED, 0)
    if reading is None:
        return [DISCONNECTED]
    if reading.error:
        return [reading.error.name]
    stable = f"log start {reading.log_start_offset}, last stable {reading.last_stable_offset}"
    return [f"{stable}, high watermark {reading.high_watermark}"]


async def _reading(stage: Stage, topic_partition: TopicPartition, level: int, offset: int) -> views.Reading | None:
    machine = stage.machine(stage.leader_id(topic_partition))
    client = stage.world.client("reader")
    try:
        return await views.read(client, machine.broker.address, topic_partition, isolation=level, offset=offset)
    except Disconnected:
        return None
    finally:
        client.close()


@step(r"log of (?P<what>\S+?)(?: on broker (?P<node>\d+))?")
async def log(stage: Stage, what: str, node: str) -> list[str]:
    return _partition_lines(stage, what, node, views.describe_log)


@step(r"\.txnindex of (?P<what>\S+?)(?: on broker (?P<node>\d+))?")
async def transaction_index(stage: Stage, what: str, node: str) -> list[str]:
    return _partition_lines(stage, what, node, views.describe_transaction_index)


@step(r"(?P<isolation>read_committed|read_uncommitted) fetches (?P<partition>\S+)(?: from (?P<offset>\d+))?")
async def fetch(stage: Stage, isolation: str, partition: str, offset: str) -> list[str]:
    topic_partition = parse_partition(partition)
    machine = stage.machine(stage.leader_id(topic_partition))
    level = views.READ_COMMITTED if isolation == "read_committed" else 0
    client = stage.world.client("reader")
    try:
        return await close_views.fetch(
            client, machine.broker.address, topic_partition, isolation=level, offset=int(offset or 0)
        )
    except Disconnected:
        return [DISCONNECTED]
    finally:
        client.close()


@step(r"(?P<what>all fields|last record|newest snapshot|\.txnindex) of (?P<partition>\S+)(?: in bytes)?")
async def look_closely(stage: Stage, what: str, partition: str) -> list[str]:
    return _partition_lines(stage, partition, "", _CLOSE_VIEWS[what])


_CLOSE_VIEWS = {
    "all fields": close_views.describe_transaction_state,
    "last record": close_views.describe_last_record_in_bytes,
    "newest snapshot": close_views.describe_snapshot,
    ".txnindex": close_views.describe_transaction_index_in_bytes,
}


@step(r"snapshots of (?P<partition>\S+)")
async def snapshots(stage: Stage, partition: str) -> list[str]:
    found = views.files(stage.machine().broker.disk, parse_partition(partition), ".snapshot")
    return [" ".join(f"at {offset}" for offset, _ in found) or "none"]


@step(r"segments of (?P<partition>\S+)")
async def segments(stage: Stage, partition: str) -> list[str]:
    found = views.files(stage.machine().broker.disk, parse_partition(partition), ".log")
    return [" ".join(f"from {offset}" for offset, _ in found) or "none"]


def _partition_lines(
    stage: Stage, what: str, node: str, describe: Callable[[Any, TopicPartition], list[str]]
) -> list[str]:
    """Of one partition; or of all that have anything, of an internal topic without a partition number."""
    if what not in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        topic_partition = parse_partition(what)
        return describe(
            stage.machine(int(node) if node else stage.leader_id(topic_partition)).broker.disk, topic_partition
        )
    disk = stage.machine(_node(node)).broker.disk
    lines = []
    for index in range(int(stage.settings["transaction.state.log.num.partitions"])):
        lines += [line for line in describe(disk, TopicPartition(what, index)) if line != "empty"]
    return lines or ["empty"]


@step(r"the time")
async def time(stage: Stage) -> list[str]:
    return [f"{(stage.world.clock.now_ms() - START_MS) / 1000:.1f} s"]
