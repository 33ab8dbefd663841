"""`fencepost groups dead-letters` and `redeliver`: records that a share group could not consume are shown, or delivered
again, from its dead-letter topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fencepost.cli.committed_records import POLL_MS, reader, records_of
from fencepost.cli.completion import group_names, topic_names
from fencepost.cli.connection import bootstrap_option, json_option, kafka_errors
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.questions import ask, sure_option
from fencepost.cli.records import fields_of
from fencepost.cli.sending import brokers

if TYPE_CHECKING:
    from fencepost.cli.redelivery import Letter, Redelivery
    from fencepost.cli.redelivery_progress import Progress
    from fencepost.client.cluster import Cluster

GROUP: Final = 32
"""Kafka's number of this kind of resource."""
TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
PREFIX: Final = "__dlq.errors."
NAMES: Final = frozenset(
    PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
COLUMNS: Final = ["topic", "partition", "offset", "delivery_count", "message", "time", "redelivered", "key", "value"]
LONGEST_READ_S: Final = 30


class OffsetRange(NamedTuple):
    """First and last offset."""

    first: int
    last: int


class _OffsetRangeType(click.ParamType):
    """`41`, or `41-50`."""

    name = "OFFSETS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetRange:
        if isinstance(value, OffsetRange):
            return value
        first, dash, last = str(value).partition("-")
        numbers = [_number(first), _number(last if dash else first)]
        if numbers[0] is None or numbers[1] is None or numbers[1] < numbers[0]:
            self.fail(f"{value!r} are no offsets: write 41, or 41-50", param, ctx)
        return OffsetRange(numbers[0], numbers[1])


@dataclass(frozen=True)
class Source:
    """A group's dead-letter topic. topic_id: its id in hexadecimal. progress: state of redeliveries by partition."""

    bootstrap: str
    group: str
    topic: str
    topic_id: str
    progress: Mapping[int, Progress]


@dataclass(frozen=True)
class Chosen:
    """Dead letters by the places of their originals; all unless a field names some. most: bound of their number."""

    topics: Sequence[str] = ()
    partitions: Sequence[int] = ()
    offsets: Sequence[OffsetRange] = ()
    most: int = 1_000

    def has(self, row: Mapping[str, Any]) -> bool:
        offset = row["offset"]
        return (
            (not self.topics or row["topic"] in self.topics)
            and (not self.partitions or row["partition"] in self.partitions)
            and (
                not self.offsets
                or (offset is not None and any(one.first <= offset <= one.last for one in self.offsets))
            )
        )


def letter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose dead letters; the command gets `chosen`."""

    @click.option("--topic", help="The dead-letter topic, if the group's configs do not name it any more.")
    @click.option("--from-topic", "topics", multiple=True, shell_complete=topic_names, help="Only those of this topic.")
    @click.option("--from-partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only those of it.")
    @click.option(
        "--offsets", type=_OffsetRangeType(), multiple=True, help="Only those of it: 41, or 41-50; repeatable."
    )
    @click.option("-n", "--max-records", type=click.IntRange(min=1), default=1_000, show_default=True, help="At most.")
    @wraps(command)
    def choosing(
        *arguments: Any,
        topics: tuple[str, ...],
        partitions: tuple[int, ...],
        offsets: tuple[OffsetRange, ...],
        max_records: int,
        **options: Any,
    ) -> None:
        command(*arguments, chosen=Chosen(topics, partitions, offsets, max_records), **options)

    return choosing


@click.command("dead-letters")
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@letter_options
def dead_letters(bootstrap: str, as_json: bool, group: str, topic: str | None, chosen: Chosen) -> None:
    """Show the records that a share group could not consume.

    Read from the group's dead-letter topic. Topic, partition and offset are those of the original record; its key and
    value are shown if the group copies them (errors.deadletterqueue.copy.record.enable). `fencepost groups redeliver`
    delivers them again.
    """
    with kafka_errors(bootstrap):
        source = _source(bootstrap, group, topic)
        _print(_rows(source, chosen), source, as_json=as_json)


@click.command("redeliver")
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@letter_options
@click.option("--dry-run", is_flag=True, help="Show the dead letters that would be delivered, and write nothing.")
@sure_option()
def redeliver(
    bootstrap: str, as_json: bool, group: str, topic: str | None, chosen: Chosen, dry_run: bool, is_sure: bool
) -> None:
    """Deliver dead letters of a share group again.

    Each record is written once more into the partition from which it came, so that the group gets it again, and so do
    other readers of the topic. A dead letter without key and value takes them from its original, if that still exists.

    Each is written once: a command that was killed is run again, and repeats nothing. Dead letters that were delivered
    again are left out; they stay in their topic.
    """
    with kafka_errors(bootstrap):
        source = _source(bootstrap, group, topic)
        rows = _rows(source, chosen, only_waiting=True)
        if dry_run:
            _print(rows, source, as_json=as_json)
            return
        if not rows and not any(one.copy is not None for one in source.progress.values()):
            raise click.ClickException(
                f"nothing to deliver: {source.topic} has no dead letters of group {group} that were chosen and not "
                "delivered again; `fencepost groups dead-letters` shows all"
            )
        if not is_sure:
            ask(_question(group, rows))
        print_done(_redeliver(source, rows), as_json=as_json)


def _print(rows: Sequence[Mapping[str, Any]], source: Source, *, as_json: bool) -> None:
    columns = [*COLUMNS, "dead_letter_partition", "dead_letter_offset", "headers"] if as_json else COLUMNS
    print_rows(columns, rows, as_json=as_json, empty=f"no such dead letters of group {source.group} in {source.topic}")


def _question(group: str, rows: Sequence[Mapping[str, Any]]) -> str:
    targets = sorted({str(row["topic"]) for row in rows})
    return (
        f"This writes {len(rows)} dead letters of group {group} to {', '.join(targets)} again, for all its readers. "
        "Continue?"
    )


def _redeliver(source: Source, rows: Sequence[Mapping[str, Any]]) -> Done:
    from fencepost.cli.redelivery import Redelivery

    wanted = {(row["dead_letter_partition"], row["dead_letter_offset"]) for row in rows}
    opened = Redelivery(source.bootstrap, source.group, source.topic, source.topic_id)
    with opened as redelivery, reader(source.bootstrap) as originals:
        redelivery.continue_interrupted(
            lambda number, offsets: list(_letters(source, originals, {(number, offset) for offset in offsets}))
        )
        redelivery.deliver(
            letter
            for letter in _letters(source, originals, wanted)
            if not redelivery.is_done(letter.partition, letter.offset) and _is_found(letter, redelivery)
        )
        outcome = redelivery.outcome
    written_count = outcome.written.total()
    counts = [
        {"topic": target[0], "partition": target[1], "records": count}
        for target, count in sorted(outcome.written.items())
    ]
    words = f"{written_count} dead letters of group {source.group} were delivered again"
    if counts:
        words += ": " + ", ".join(f"{one['records']} to {one['topic']}-{one['partition']}" for one in counts)
    if outcome.continued_count:
        words += f"; {outcome.continued_count} more were begun by an earlier command"
    if outcome.lost:
        words += f"; {len(outcome.lost)} have no key and value, and their originals are gone"
    fields = {
        "group": source.group,
        "dead_letter_topic": source.topic,
        "redelivered": written_count,
        "continued": outcome.continued_count,
        "without_original": len(outcome.lost),
        "partitions": counts,
    }
    return Done(words, fields)


def _is_found(letter: Letter, redelivery: Redelivery) -> bool:
    if not letter.has_original:
        redelivery.outcome.lost.append(letter)
        return False
    return True


# The dead-letter topic


def _topic_of(bootstrap: str, group: str) -> str | None:
    async def ask(cluster: Cluster) -> str | None:
        from fencepost.console.reading.settings import ResourceKind, read_settings

        settings = await read_settings(cluster, ResourceKind(GROUP), group, None)
        return next((one.value for one in settings if one.name == TOPIC_CONFIG), None)

    return ask_cluster(bootstrap, ask)


def _topic_id(bootstrap: str, topic: str) -> str:
    """The id of a topic, in hexadecimal. Raises ClickException if there is none."""
    from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    with brokers(bootstrap) as cluster:
        reply = cluster.send(
            MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        )
    if reply.topics[0].error_code:
        raise click.ClickException(f"there is no topic {topic}: create it with `fencepost topics create`")
    return bytes(reply.topics[0].topic_id).hex()


def _source(bootstrap: str, group: str, topic: str | None) -> Source:
    """Raises ClickException."""
    from fencepost.cli.redelivery import read_progress

    found = topic or _topic_of(bootstrap, group)
    if not found:
        raise click.ClickException(
            f"group {group} has no dead-letter topic: set {TOPIC_CONFIG} with `fencepost configs group {group} --set`, "
            "or name an earlier one with --topic"
        )
    topic_id = _topic_id(bootstrap, found)
    return Source(bootstrap, group, found, topic_id, read_progress(bootstrap, group, topic_id))


def _rows(source: Source, chosen: Chosen, *, only_waiting: bool = False) -> list[dict[str, Any]]:
    """The chosen dead letters; only_waiting: the ones to deliver again."""
    rows: list[dict[str, Any]] = []
    with reader(source.bootstrap) as consumer:
        for record in records_of(consumer, [source.topic]):
            row = row_of(record, source.group)
            if row is None or not chosen.has(row):
                continue
            progress = source.progress.get(record.partition)
            is_done = row["redelivered"] = progress is not None and record.offset in progress.done
            if not (only_waiting and (is_done or row["topic"] is None or row["partition"] is None)):
                rows.append(row)
            if len(rows) >= chosen.most:
                break
    return rows


def row_of(record: Any, group: str) -> dict[str, Any] | None:
    """The row of a consumed record; None if it is no dead letter of the group.

    The last header of a name counts: the original record may have had one of the same name.
    """
    fields = fields_of(record)
    headers = {name.removeprefix(PREFIX): value for name, value in fields["headers"] if name.startswith(PREFIX)}
    if headers.get("group") != group:
        return None
    return {
        "topic": headers.get("topic"),
        "partition": _number(headers.get("partition")),
        "offset": _number(headers.get("offset")),
        "delivery_count": _number(headers.get("delivery.count")),
        "message": headers.get("message"),
        "time": fields["time"],
        "redelivered": False,
        "key": fields["key"],
        "value": fields["value"],
        "dead_letter_partition": fields["partition"],
        "dead_letter_offset": fields["offset"],
        "headers": [header for header in fields["headers"] if not header[0].startswith(PREFIX)],
    }


def _number(text: Any) -> int | None:
    """A number of a header, which any producer may have written; None if it is none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20 else None


# Records to write


def original_headers(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of the original record: without the last one of each name that the broker has added."""
    missing = set(NAMES)
    kept: list[tuple[str, bytes | None]] = []
    for name, value in reversed(headers):
        if name in missing:
            missing.remove(name)
        else:
            kept.append((name, value))
    return tuple(reversed(kept))


def _letters(source: Source, originals: Any, wanted: Collection[tuple[int, int]]) -> Iterator[Letter]:
    """The dead letters at some places that are still there, partition after partition as they arrive."""
    behind: dict[int, int] = {}
    with reader(source.bootstrap) as consumer:
        for record in records_of(consumer, [source.topic]):
            row = row_of(record, source.group)
            if row is None:
                continue
            since = behind.get(record.partition, record.offset)
            behind[record.partition] = record.offset + 1
            if (record.partition, record.offset) in wanted:
                yield _letter(record, row, since, originals)


def _letter(record: Any, row: Mapping[str, Any], since: int, originals: Any) -> Letter:
    headers = original_headers([(name, value) for name, value in record.headers or ()])
    key, value = record.key, record.value
    has_original = True
    if key is None and value is None:
        original = _original(originals, row, record.timestamp)
        has_original = original is not None
        if original is not None:
            key, value = original.key, original.value
            headers = tuple((name, content) for name, content in original.headers or ())
    from fencepost.cli.redelivery import Letter

    target = str(row["topic"]), int(row["partition"])
    return Letter(record.partition, record.offset, since, target, key, value, headers, has_original=has_original)


def _original(consumer: Any, row: Mapping[str, Any], dead_ms: int) -> Any | None:
    """The original of a dead letter; None if it is gone. A record that is younger is another one: its topic was created
    again."""
    from kafka import TopicPartition

    place = TopicPartition(row["topic"], row["partition"])
    offset = row["offset"]
    if offset is None or place.partition not in (consumer.partitions_for_topic(place.topic) or ()):
        return None
    first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
    if not first <= offset < end:
        return None
    consumer.assign([place])
    consumer.seek(place, offset)
    give_up_at_s = time.monotonic() + LONGEST_READ_S
    while time.monotonic() < give_up_at_s:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for record in records:
                return record if record.offset == offset and record.timestamp <= dead_ms else None
        if consumer.position(place) > offset:
            return None
    raise click.ClickException(f"{place.topic}-{place.partition} could not be read at offset {offset}")
