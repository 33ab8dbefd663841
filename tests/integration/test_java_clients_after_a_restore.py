"""Java's consumers, share consumers, MirrorMaker and Flink over a restored broker: each new record comes once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from scripts.apache_kafka import KAFKA_VERSION
from tests.compat.jvm import FLINK, JVM_OPTIONS, class_path
from tests.docs.test_moving_page import FILES, MIRROR_VERSION, QUICKER
from tests.integration.test_restored_directory import of_librdkafka
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import noted, until
from tests.support.restored_broker import KEPT, LOST, NEW, restored_broker

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
MIRROR = "org.apache.kafka.connect.mirror.MirrorMaker"


class Java:
    """A running Java program. lines: what it has printed on standard output."""

    def __init__(self, jars: str, arguments: Sequence[str], folder: Path) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                ["java", *JVM_OPTIONS, "-cp", jars, *arguments], stdout=output, stderr=errors
            )

    @property
    def lines(self) -> list[str]:
        return self._output.read_text(errors="replace").split()

    @property
    def told(self) -> str:
        return self._output.read_text(errors="replace")[-4_000:] + self._errors.read_text(errors="replace")[-4_000:]

    def has(self, values: Sequence[str]) -> bool:
        assert self.process.poll() is None, self.told
        return set(values) <= set(self.lines)


@contextmanager
def java(jars: str, arguments: Sequence[str], folder: Path) -> Iterator[Java]:
    folder.mkdir(exist_ok=True)
    program = Java(jars, arguments, folder)
    try:
        with noted(lambda: program.told):
            yield program
    finally:
        program.process.terminate()
        program.process.wait(60)


def tools() -> str:
    return class_path(("kafka-tools", KAFKA_VERSION))


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_java_consumer_that_kept_a_position_outside_begins_with_the_first_new_record(
    tmp_path: Path, reset: str
) -> None:
    with restored_broker(tmp_path) as restored:
        restored.copy()
        restored.write(LOST)
        restored.lose_and_restore()
        restored.write(NEW)
        arguments = [
            *(CONSUMER, "--bootstrap-server", restored.broker.bootstrap, "--topic", "orders"),
            *("--partition", "0", "--offset", "30", "--command-property", f"auto.offset.reset={reset}"),
        ]
        with java(tools(), arguments, tmp_path / "java") as consumer:
            until(lambda: consumer.has(NEW))
            assert consumer.lines == NEW


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_consumer_that_lives_on_gets_each_new_record_once(tmp_path: Path, protocol: str) -> None:
    with restored_broker(tmp_path) as restored:
        arguments = [
            *(CONSUMER, "--bootstrap-server", restored.broker.bootstrap, "--topic", "orders", "--group", "of-java"),
            *("--from-beginning", "--command-property", f"group.protocol={protocol}"),
        ]
        with java(tools(), arguments, tmp_path / "java") as consumer:
            until(lambda: consumer.has(KEPT))  # the group is in the copy: without it, its members end with an error
            restored.copy()
            restored.write(LOST)
            until(lambda: consumer.has(LOST))
            restored.lose_and_restore()
            restored.write(NEW)
            until(lambda: consumer.has(NEW))
            assert [value for value in consumer.lines if value in NEW] == NEW


def test_a_share_group_gets_each_new_record(tmp_path: Path) -> None:
    with restored_broker(tmp_path) as restored:
        admin = AdminClient({"bootstrap.servers": restored.broker.bootstrap, "log_level": 0})
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, "shared", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        arguments = [
            *(SHARE_CONSUMER, "--bootstrap-server", restored.broker.bootstrap, "--topic", "orders"),
            *("--group", "shared"),
        ]
        with java(tools(), arguments, tmp_path / "before") as consumer:
            until(lambda: consumer.has(KEPT))
        restored.copy()
        with java(tools(), arguments, tmp_path / "java") as consumer:
            restored.write(LOST)
            until(lambda: consumer.has(LOST))
            restored.lose_and_restore()
            restored.write(NEW)
            until(lambda: consumer.has(NEW))
            assert [value for value in consumer.lines if value in NEW] == NEW


@contextmanager
def mirror(folder: Path, source: BrokerProcess, target: BrokerProcess) -> Iterator[Java]:
    settings = FILES["mm2.properties"].replace("kafka.example:9092", source.bootstrap)
    properties = folder / "mm2.properties"
    properties.write_text(settings.replace("127.0.0.1:9092", target.bootstrap) + QUICKER, encoding="utf-8")
    with java(class_path(("connect-mirror", MIRROR_VERSION)), [MIRROR, str(properties)], folder / "mirror") as program:
        yield program


def copied(target: BrokerProcess, values: Sequence[str]) -> bool:
    return of_librdkafka(target.bootstrap, "orders", 0, len(values)) == values


def test_mirror_maker_copies_each_new_record_of_a_source_that_was_restored(tmp_path: Path) -> None:
    with restored_broker(tmp_path) as restored, BrokerProcess(tmp_path / "target") as target:
        restored.copy()
        restored.write(LOST)
        with mirror(tmp_path, restored.broker, target):
            assert copied(target, [*KEPT, *LOST])
        restored.lose_and_restore()
        restored.write(NEW)
        with mirror(tmp_path, restored.broker, target):
            assert copied(target, [*KEPT, *LOST, *NEW])


def test_mirror_maker_copies_again_what_its_restored_target_has_lost(tmp_path: Path) -> None:
    with restored_broker(tmp_path) as source, restored_broker(tmp_path / "target", topics=()) as target:
        with mirror(tmp_path, source.broker, target.broker):
            assert copied(target.broker, KEPT)
        target.copy()
        source.write(LOST)
        with mirror(tmp_path, source.broker, target.broker):
            assert copied(target.broker, [*KEPT, *LOST])
        target.lose_and_restore()
        source.write(NEW)
        with mirror(tmp_path, source.broker, target.broker):
            assert copied(target.broker, [*KEPT, *LOST, *NEW])


def checkpoints_after(folder: Path, moment_s: float) -> list[Path]:
    """The complete checkpoints that were written after a moment."""
    return [one.parent for one in folder.rglob("_metadata") if one.parent.stat().st_mtime > moment_s]


def test_a_checkpoint_of_flink_goes_on_with_the_first_new_record(tmp_path: Path) -> None:
    jars = class_path(FLINK / "ivy.xml")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    with restored_broker(tmp_path) as restored:
        restored.copy()
        restored.write(LOST)
        program = [str(FLINK / "ReadingJob.java"), restored.broker.bootstrap, "orders", str(checkpoints)]
        with java(jars, program, tmp_path / "before") as job:
            until(lambda: job.has(LOST))
            seen_s = time.time() + 1  # a checkpoint that is written now may have begun before
            kept = shutil.copytree(until(lambda: checkpoints_after(checkpoints, seen_s))[-1], tmp_path / "kept")
        restored.lose_and_restore()
        restored.write(NEW)
        with java(jars, [*program, str(kept)], tmp_path / "after") as job:
            until(lambda: job.has(NEW))
            assert job.lines == NEW
