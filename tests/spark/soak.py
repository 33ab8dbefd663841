"""A pipeline of two stages under random kills: `python -m tests.spark.soak --minutes 60 --kind fencepost --seed 7`.

Numbers go into a topic; a query copies them into a second topic, and another Spark's `foreachBatch` into a third one,
both with `format("fencepost")`. Meanwhile Python workers, virtual machines, whole Sparks and brokers are killed with
kill -9, and queries are stopped. At the end another client reads all topics: each number has to be there once, in the
order of its key, and no transaction may be open. If something was found, the exit code is 1, and the folder stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka as ck
import psutil

from tests.spark.world import BROKERS, PARTITIONS, Flow, KilledInTurns, LostInTurns, Spark, World, world

KEYS = 16
PER_BATCH = 2_000
RATE = 50
FAULT_INTERVAL_S = 20.0
LOOK_S = 0.5
FINISH_S = 600.0
"""Maximum time without a new number at the end of the pipeline."""
TWO_AT_ONCE = 0.25
"""How often two things are killed at once."""
AT_STARTS = 0.25
"""How often the next kill comes whether or not there was progress since the one before."""
PATIENCE_S = 120.0
"""Maximum wait for progress between two kills."""
WRONG = ("HeuristicOutcome", "SinkInUse", "SinkUsedTwice", "LedgerChanged", "NoLedger")
"""Errors that no kill may be the reason of."""


class Writer(threading.Thread):
    """Writes numbers, each once, with the remainder by KEYS as its key."""

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        super().__init__(name="writer", daemon=True)
        settings = {"enable.idempotence": True, "message.timeout.ms": 0, "partitioner": "murmur2_random"}
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20, **settings})
        self._topic, self._pause_s = topic, 1 / rate
        self._ending = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._ending.wait(self._pause_s):
            self._producer.produce(self._topic, str(self.count), str(self.count % KEYS))
            self.count += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._ending.set()
        self.join()
        assert self._producer.flush(FINISH_S) == 0, "the broker did not take all numbers"


class Reader(threading.Thread):
    """Counts the committed records at the end of the pipeline."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="reader", daemon=True)
        settings = {"group.id": "counting", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = ck.Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        self._consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._ending = threading.Event()
        self.count = self._waited_at = 0
        self.latest_s = time.monotonic()

    def run(self) -> None:
        with contextlib.closing(self._consumer):
            while not self._ending.is_set():
                for message in self._consumer.consume(500, LOOK_S):
                    if message.error() is None:
                        self.count += 1
                        self.latest_s = time.monotonic()

    def wait_for_more(self, timeout_s: float) -> None:
        """Wait for records since the last call: on a busy machine a Spark may need a minute to start."""
        give_up_at_s = time.monotonic() + timeout_s
        while self.count == self._waited_at and time.monotonic() < give_up_at_s:
            time.sleep(LOOK_S)
        self._waited_at = self.count

    def end(self) -> None:
        self._ending.set()
        self.join()


class Stage(threading.Thread):
    """One query in a Spark of its own: both are started again whenever they have ended."""

    def __init__(self, here: World, flow: Flow) -> None:
        super().__init__(name=flow.name, daemon=True)
        self._here, self._flow = here, flow
        self._ending = threading.Event()
        self.stop_wanted = threading.Event()
        self.spark: Spark | None = None
        self.started: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._ending.is_set():
            # What a Spark that was killed leaves: its program ends, or the pipe to it.
            with contextlib.suppress(AssertionError, OSError, ValueError), self._here.spark("local[4,3]") as self.spark:
                self.started["Spark"] += 1
                while not self._ending.is_set():
                    self._query(self.spark)
                self.spark.ask("stop", name=self._flow.name)

    def _query(self, spark: Spark) -> None:
        """Start the query, and return when it has ended, or is to."""
        spark.ask("start", **self._flow.fields)
        self.started["query"] += 1
        while not self._ending.wait(LOOK_S):
            if self.stop_wanted.is_set():
                spark.ask("stop", name=self._flow.name)
                self.stop_wanted.clear()
                return
            state = spark.ask("state", name=self._flow.name)
            if not state["active"]:
                self.errors.append(state["error"] or "the query has ended")
                return

    def end(self) -> None:
        self._ending.set()
        self.join()

    def processes(self) -> list[psutil.Process]:
        return [] if self.spark is None else self.spark.processes()


class Kills:
    """Ways to end something, by name. Each returns whether there was something to end."""

    def __init__(self, here: World, stages: Sequence[Stage], choices: random.Random) -> None:
        self._here, self._stages, self._choices = here, stages, choices
        self.seen: set[psutil.Process] = set()
        self.ways: dict[str, tuple[int, Callable[[], bool]]] = {  # with their weights
            "Python worker": (4, lambda: self._kill_one(self._is_worker)),
            "virtual machine": (1, lambda: self._kill_one(lambda process: process.name() == "java")),
            "whole Spark": (1, self._kill_spark),
            "stop of a query": (1, self._stop),
            "broker": (2, self._kill_broker),
        }

    def one(self) -> str | None:
        """Kill at random; return what."""
        weights = [weight for weight, _ in self.ways.values()]
        name = self._choices.choices(list(self.ways), weights)[0]
        return name if self.ways[name][1]() else None

    @staticmethod
    def _is_worker(process: psutil.Process) -> bool:
        return "pyspark.daemon" in process.cmdline()

    def _kill_one(self, matches: Callable[[psutil.Process], bool]) -> bool:
        found = []
        for process in self._choices.choice(self._stages).processes():
            self.seen.add(process)
            with contextlib.suppress(psutil.Error):
                if matches(process):
                    found.append(process)
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self._choices.choice(found).kill()
        return True

    def _kill_spark(self) -> bool:
        processes = self._choices.choice(self._stages).processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return bool(processes)

    def _stop(self) -> bool:
        self._choices.choice(self._stages).stop_wanted.set()
        return True

    def _kill_broker(self) -> bool:
        broker = self._here.broker
        if isinstance(broker, KilledInTurns | LostInTurns):
            broker.replace(self._choices.choice(list(broker.node_ids)))
        else:
            broker.kill()
            broker.start()
        return True

    def end_survivors(self) -> None:
        """Python workers live on when their virtual machine was killed."""
        for process in self.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running():
                    process.kill()


class Asked(NamedTuple):
    kind: str
    minutes: float
    seed: int
    rate: float
    fault_interval_s: float
    tasks: int


def soak(asked: Asked, folder: Path) -> list[str]:
    """Run the pipeline, print what was done, and return what was found."""
    choices = random.Random(asked.seed)
    killed: Counter[str] = Counter()
    found: list[str] = []
    with world(asked.kind, folder) as here:
        more: dict[str, Any] = {"interval": "1 second", "per_batch": PER_BATCH, "partitions": asked.tasks}
        more |= {"batches": 0, "is_recorded": False}
        first = here.flow("first", **more)
        second = here.flow("second", source=first.target, output_mode="update", **more)
        writer = Writer(here.wire.bootstrap, str(first.fields["source"]), asked.rate)
        reader = Reader(here.wire.bootstrap, second.target)
        stages = [Stage(here, flow) for flow in (first, second)]
        kills = Kills(here, stages, choices)
        began_s = time.monotonic()
        for thread in (writer, reader, *stages):
            thread.start()
        while time.monotonic() - began_s < asked.minutes * 60:
            time.sleep(choices.uniform(0.5, 1.5) * asked.fault_interval_s)
            if choices.random() > AT_STARTS:
                reader.wait_for_more(PATIENCE_S)
            for _ in range(2 if choices.random() < TWO_AT_ONCE else 1):
                name = kills.one()
                if name is not None:
                    killed[name] += 1
                    say(f"{time.monotonic() - began_s:.0f} s: {name}; {writer.count} in, {reader.count} out")
            if time.monotonic() - reader.latest_s > FINISH_S:
                found.append(f"nothing came for {FINISH_S:g} s")
                break
        writer.end()
        while reader.count < writer.count and time.monotonic() - reader.latest_s < FINISH_S:
            time.sleep(LOOK_S)
        reader.end()
        for stage in stages:
            stage.end()
        kills.end_survivors()
        found += checked(here, writer.count, (first, second), is_ordered=not asked.tasks)
        batches = {flow.name: here.batches(flow) for flow in (first, second)}
    for stage in stages:
        say(f"{stage.name}: started {dict(stage.started)}, {batches[stage.name]} batches")
        for error, count in Counter(error.splitlines()[0][:300] for error in stage.errors).items():
            say(f"{stage.name} ended {count} times: {error}")
        found += [error for error in stage.errors if any(name in error for name in WRONG)]
    say(f"killed: {dict(killed)}")
    say(f"{writer.count} numbers through two stages in {(time.monotonic() - began_s) / 60:.1f} minutes")
    return found


def checked(here: World, count: int, flows: Sequence[Flow], *, is_ordered: bool) -> list[str]:
    """Compare each topic with the numbers that were written."""
    found = [f"the transaction of {name} is open" for flow in flows for name in here.open_transactions(flow)]
    for topic in (str(flows[0].fields["source"]), *(flow.target for flow in flows)):
        _, records = here.read(topic)
        wrong = faults_of([int(value.partition("#")[0]) for _, _, _, value in records], count, is_ordered=is_ordered)
        if wrong:
            (here.folder / f"{topic}.json").write_text(json.dumps(records))
        found += [f"{topic}: {one}" for one in wrong]
    return found


def faults_of(numbers: Sequence[int], count: int, *, is_ordered: bool) -> list[str]:
    """What is wrong with numbers that were read, partition by partition, of those from 0 to `count`."""
    times = Counter(numbers)
    missing = [number for number in range(count) if number not in times]
    again = [number for number, seen in times.items() if seen > 1]
    foreign = [number for number in times if not 0 <= number < count]
    kinds = {"missing": missing, "there again": again, "from nowhere": foreign}
    found = [f"{len(which)} of {count} are {what}, such as {which[:5]}" for what, which in kinds.items() if which]
    latest: dict[int, int] = {}
    for number in numbers if is_ordered else ():
        if number < latest.get(number % KEYS, -1):
            return [*found, f"{number} comes after {latest[number % KEYS]}, which has the same key"]
        latest[number % KEYS] = number
    return found


def say(text: str) -> None:
    print(f"soak: {text}", flush=True)  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kind", choices=sorted(BROKERS), default="fencepost")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=RATE, help="numbers a second")
    parser.add_argument("--fault-interval", type=float, default=FAULT_INTERVAL_S, help="seconds between kills, about")
    parser.add_argument("--tasks", type=int, default=0, help="of each batch; the default keeps the order of each key")
    parser.add_argument("--directory", type=Path, help="for the data; it stays if something was found")
    given = parser.parse_args(arguments)
    folder = given.directory or Path(tempfile.mkdtemp(prefix="fencepost-spark-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    asked = Asked(given.kind, given.minutes, given.seed, given.rate, given.fault_interval, given.tasks)
    say(f"{asked}")
    found = soak(asked, folder)
    for text in found:
        say(f"found: {text}")
    if found:
        say(f"verdict: failed; repeat it with --seed {asked.seed}; the data are in {folder}")
        return 1
    say("verdict: each number is in each topic once")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
