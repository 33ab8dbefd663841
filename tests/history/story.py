"""A history under construction, line by line, for tests of the checker."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.history.checker import check_history
from fencepost.history.findings import Anomaly
from fencepost.history.writer import ClientHistory, HistoryWriter, ReadRecord


class Story:
    """A history under construction; `line` is the number of its last line."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.writer = HistoryWriter(self.lines.append, now_ms=lambda: len(self.lines))

    @property
    def line(self) -> int:
        return len(self.lines)

    def producer(self, name: str = "producer") -> ClientHistory:
        return self.writer.client(name, transactional_id=name, isolation_level="read_committed")

    def consumer(self, name: str = "consumer") -> ClientHistory:
        return self.writer.client(name, isolation_level="read_committed")

    def send(self, client: ClientHistory, value: str, partition: int, offset: int) -> tuple[int, int]:
        """The lines of the invocation and of the acknowledgement."""
        call = client.send("t", value, partition)
        sent_line = self.line
        call.ok(offset=offset)
        return sent_line, self.line

    def commit(self, client: ClientHistory) -> int:
        client.commit().ok()
        return self.line

    def abort(self, client: ClientHistory) -> int:
        client.abort().ok()
        return self.line

    def poll(self, client: ClientHistory, *records: ReadRecord) -> int:
        client.polled(records)
        return self.line

    def final_read(self, end_offsets: Iterable[int], *records: ReadRecord) -> int:
        reader = self.consumer("final")
        reader.final_read([("t", partition, 0, end) for partition, end in enumerate(end_offsets)]).ok(records)
        return self.line

    def found(self, *, forbid_write_cycles: bool = False) -> list[tuple[Anomaly, list[int]]]:
        report = check_history(self.lines, forbid_write_cycles=forbid_write_cycles)
        return [(finding.anomaly, [proof.line for proof in finding.proofs]) for finding in report.findings]


def three_records(story: Story) -> tuple[ReadRecord, ReadRecord, ReadRecord]:
    producer = story.producer()
    for offset, value in enumerate("abc"):
        story.send(producer, value, 0, offset)
    return ("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 0, 2, "c")


def process(story: Story, app: ClientHistory, value: str, place: int, inputs: list[str], offset: int) -> list[int]:
    """One consume-transform-produce transaction; the lines of the send, the offsets and the commit."""
    app.begin()
    sent, _ = (app.send("t", value, 0, inputs), None)
    sent_line = story.line
    sent.ok(offset=place)
    call = app.send_offsets("group", [("in", 0, offset)])
    offsets_line = story.line
    call.ok()
    return [sent_line, offsets_line, story.commit(app)]
