"""What is written comes back as it was, whatever carried it and however it is asked for."""

from __future__ import annotations

import json
import random
import tempfile
import time
import zlib
from pathlib import Path

from tests.compat.kcat.tool import (
    PARTITION_COUNT,
    UNCOMMITTED,
    create_topic,
    kcat,
    numbers,
    offset,
    produce,
    read,
    read_all,
    succeed,
)
from tests.compat.python_checks import Check

START_OF_2020_MS = 1_577_836_800_000


def produce_and_consume(check: Check) -> None:
    topic = create_topic(check)
    headers = ["-H", "number=1", "-H", "empty=", "-H", "null", "-H", "number=2"]
    lines = "key:value\n:no key\nno delimiter\nlong key:" + "v" * 5_000 + "\n"
    before_ms = int(time.time() * 1000)
    succeed(check, "-P", "-t", topic, "-p", "1", "-K", ":", *headers, records=lines)
    after_ms = int(time.time() * 1000)
    shown = read(check, topic, "-J")
    wanted = [("key", "value"), ("", "no key"), (None, "no delimiter"), ("long key", "v" * 5_000)]
    check.equal("records", len(shown), len(wanted))
    for number, (line, (key, value)) in enumerate(zip(shown, wanted, strict=True)):
        record = json.loads(line)
        check.equal("a time of this check", before_ms <= record.pop("ts") <= after_ms, True)
        check.equal("the broker is one of the nodes", 1 <= record.pop("broker") <= len(check.addresses), True)
        expected = {
            "topic": topic,
            "partition": 1,
            "offset": number,
            "tstype": "create",
            "headers": ["number", "1", "empty", "", "null", None, "number", "2"],
            "key": key,
            "payload": value,
        }
        check.equal(f"record {number}", record, expected)


def formats(check: Check) -> None:
    topic = create_topic(check)
    succeed(check, "-P", "-t", topic, "-p", "2", "-k", "fixed", "-H", "a=1", "-D", "|", records="one|two\nlines|three")
    form = "%t %p %o <%k> %K <%s> %S %h;"
    text = "".join(
        f"{topic} 2 {number} <fixed> 5 <{value}> {len(value)} a=1;"
        for number, value in enumerate(["one", "two\nlines", "three"])
    )
    check.equal("formatted", succeed(check, "-C", "-t", topic, "-e", "-q", "-f", form), text)
    shown = succeed(check, "-C", "-t", topic, "-e", "-q", "-K", "=", "-D", "\\x21")
    check.equal("with delimiters", shown, "fixed=one!fixed=two\nlines!fixed=three!")
    sizes = succeed(check, "-C", "-t", topic, "-e", "-q", "-f", "%R%s")
    check.equal("with sizes in front", sizes, "\0\0\0\3one\0\0\0\x09two\nlines\0\0\0\5three")


def tombstones(check: Check) -> None:
    topic = create_topic(check)
    succeed(check, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", records="a:1\na:\nb:2\n")
    check.equal("null", read(check, topic, "-Z", "-f", "%k=%s %S\\n"), ["a=1 1", "a=NULL -1", "b=2 1"])
    empty = create_topic(check, "empty")
    succeed(check, "-P", "-t", empty, "-p", "0", "-K", ":", records="a:\n")
    check.equal("empty", read(check, empty, "-f", "%k=%s %S\\n"), ["a= 0"])


def files(check: Check) -> None:
    topic = create_topic(check)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("first", "second")]
        paths[0].write_text("first\nfile\n")
        paths[1].write_text("second file")
        succeed(check, "-P", "-t", topic, "-p", "0", *map(str, paths))
        check.equal("a record for each file", read(check, topic, "-D", "|"), ["first", "file", "|second file|"])
        succeed(check, "-P", "-t", topic, "-p", "1", "-l", str(paths[0]))
        check.equal("a record for each line", read(check, topic, "-p", "1"), ["first", "file"])
    shown = succeed(check, "-P", "-t", topic, "-p", "2", "-T", "-c", "3", records="\n".join(numbers(0, 10)))
    check.equal("copied to the output", shown, "012")
    check.equal("as many as asked for", read_all(check, topic, 2), ["0", "1", "2"])


def partitions(check: Check) -> None:
    topic = create_topic(check)
    keys = [f"key-{number}" for number in range(60)]
    succeed(check, "-P", "-t", topic, "-K", ":", records="".join(f"{key}:{key}\n" for key in keys))
    for partition in range(PARTITION_COUNT):
        # librdkafka's own partitioner.
        wanted = [key for key in keys if zlib.crc32(key.encode()) % PARTITION_COUNT == partition]
        check.equal("keys of a partition, in order", read_all(check, topic, partition), wanted)
        check.equal("end", offset(check, topic, partition, -1), len(wanted))
    check.equal("all of them", sorted(read(check, topic)), sorted(keys))


def compression(check: Check) -> None:
    topic = create_topic(check)
    chance = random.Random(1)
    written: list[str] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {chance.random()} " * chance.randint(1, 200) for _ in range(50)]
        produce(check, topic, values, config=[f"compression.codec={codec}"])
        written += values
    check.equal("records", read_all(check, topic), written)


def acks(check: Check) -> None:
    topic = create_topic(check)
    written: list[str] = []
    for level in ("all", "1", "0"):
        values = [f"{level}-{number}" for number in range(10)]
        produce(check, topic, values, config=[f"acks={level}"])
        written += values
    # Nothing says when the last ones, which nobody acknowledges, are there.
    check.comes_to("records", lambda: read_all(check, topic), written)


def idempotent(check: Check) -> None:
    topic = create_topic(check)
    values = numbers(0, 20_000)
    for partition in range(2):
        produce(check, topic, values, partition, config=["enable.idempotence=true", "batch.num.messages=100"])
    for partition in range(2):
        check.equal("records", read_all(check, topic, partition, UNCOMMITTED), values)


def record_too_large(check: Check) -> None:
    topic = create_topic(check)
    large = ["message.max.bytes=8000000"]
    produce(check, topic, ["x" * 1_000_000], config=large)
    refused = kcat(check, "-P", "-t", topic, "-p", "0", records="x" * 1_100_000, config=large)
    check.equal("exit code", refused.code, 1)
    check.equal("error", refused.errors.strip(), "% Delivery failed for message: Broker: Message size too large")
    produce(check, topic, ["after"])
    check.equal("sizes of the records", [len(value) for value in read_all(check, topic)], [1_000_000, 5])


def offsets(check: Check) -> None:
    topic = create_topic(check)
    produce(check, topic, numbers(0, 20))

    def first(start: str, count: int = 2) -> list[str]:
        return read(check, topic, "-p", "0", "-o", start, "-c", str(count))

    check.equal("from the beginning", first("beginning"), ["0", "1"])
    check.equal("from an offset", first("7"), ["7", "8"])
    check.equal("before the end", first("-3", 9), ["17", "18", "19"])
    check.equal("further back than there is", first("-30"), ["0", "1"])
    check.equal("from the end", first("end"), [])
    # Out of range: the consumer goes where auto.offset.reset says.
    check.equal("past the end", first("99"), [])
    earliest = read(check, topic, "-p", "0", "-o", "99", "-c", "2", config=["auto.offset.reset=earliest"])
    check.equal("past the end, back to the earliest", earliest, ["0", "1"])
    arguments = ("-C", "-t", topic, "-p", "0", "-o", "99", "-e", "-q")
    refused = kcat(check, *arguments, config=["auto.offset.reset=error"])
    check.equal("exit code past the end", refused.code, 1)
    check.equal("error past the end", "Broker: Offset out of range" in refused.errors, True)


def offsets_by_time(check: Check) -> None:
    topic = create_topic(check)
    for start in (0, 5, 10):
        produce(check, topic, numbers(start, start + 5))
        time.sleep(0.01)  # the records of the next call shall be younger
    times_ms = [int(line) for line in read(check, topic, "-f", "%T\\n")]
    second_ms, third_ms = times_ms[5], times_ms[10]
    check.equal("three times apart", times_ms[4] < second_ms and times_ms[9] < third_ms, True)
    check.equal("from a time", read(check, topic, "-o", f"s@{second_ms}"), numbers(5, 15))
    between = read(check, topic, "-o", f"s@{second_ms}", "-o", f"e@{third_ms}")
    check.equal("between two times", between, numbers(5, 10))
    check.equal("from a time long ago", read(check, topic, "-p", "0", "-o", f"s@{START_OF_2020_MS}"), numbers(0, 15))
    check.equal("from a time to come", read(check, topic, "-o", f"s@{third_ms + 3_600_000}"), [])
    # -1 asks for the latest, -2 for the earliest; a time after the last record has no offset.
    for what, asked, wanted in (
        ("latest", -1, 15),
        ("earliest", -2, 0),
        ("at a time", second_ms, 5),
        ("just after a time", times_ms[9] + 1, 10),
        ("long ago", START_OF_2020_MS, 0),
        ("to come", third_ms + 3_600_000, -1),
    ):
        check.equal(f"offset asked for: {what}", offset(check, topic, 0, asked), wanted)
    check.equal("offset in an empty partition", offset(check, topic, 1, second_ms), -1)
    several = succeed(check, "-Q", "-t", f"{topic}:0:{second_ms}", "-t", f"{topic}:1:-1", "-t", f"{topic}:2:-2")
    check.equal(
        "offsets asked for together",
        sorted(several.splitlines()),
        [f"{topic} [0] offset 5", f"{topic} [1] offset 0", f"{topic} [2] offset 0"],
    )
