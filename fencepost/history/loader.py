"""Loader that builds a History from its lines, in one pass and in their order.

Questions that need all lines, such as whether a transaction is committed or a record lost, are left to the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fencepost.history.model import (
    Client,
    FetchedOffset,
    History,
    OffsetCommit,
    Partition,
    Run,
    Send,
    SendOutcome,
    Transaction,
    TransactionOutcome,
)
from fencepost.history.reader import OUTCOMES, HistoryReader, MalformedHistoryError
from fencepost.history.sightings import new_run, place, read

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class _InvalidLine(Exception):  # noqa: N818 - never leaves this module
    """The current line is not one that docs/history.md allows."""


def load_history(lines: Iterable[bytes]) -> History:
    """Load a whole history.

    lines: lines of a file opened in binary mode.
    Raises MalformedHistoryError at the first line that is not an operation, or is not allowed at its place.
    """
    reader = HistoryReader(lines)
    loader = _Loader()
    for number, line in reader:
        loader.add(number, line)
    loader.history.line_count = reader.line_count
    loader.history.torn_line_count = reader.torn_line_count
    return loader.history


Operation = tuple[str, Any]


class _Loader:
    def __init__(self) -> None:
        self.history = History()
        self._line = 0
        self._clients: dict[str, Client] = {}
        self._calls: dict[str, dict[int, Operation]] = {}
        self._alone: dict[str, Callable[[Client, dict[str, Any]], None]] = {
            "begin": self._begin,
            "assign": self._assign,
            "seek": self._seek,
            "poll": self._poll,
            "topic": self._topic,
        }
        self._invoked: dict[str, Callable[[Client, dict[str, Any]], Any]] = {
            "send": self._send_invoked,
            "send_offsets": self._send_offsets_invoked,
            "commit": self._commit_invoked,
            "abort": self._abort_invoked,
            "commit_offsets": self._commit_offsets_invoked,
            "fetch_offsets": self._fetch_offsets_invoked,
            "final_offsets": self._fetch_offsets_invoked,
            "final_read": self._final_read_invoked,
            "poll": self._nothing_invoked,
            "begin": self._nothing_invoked,
        }
        self._completed: dict[str, Callable[[Client, Any, str, dict[str, Any]], None]] = {
            "send": self._send_completed,
            "send_offsets": self._offsets_completed,
            "commit": self._commit_completed,
            "abort": self._abort_completed,
            "commit_offsets": self._offsets_completed,
            "fetch_offsets": self._fetch_offsets_completed,
            "final_offsets": self._final_offsets_completed,
            "final_read": self._final_read_completed,
        }

    def add(self, number: int, line: dict[str, Any]) -> None:
        """Add the next line."""
        self._line = number
        try:
            self._add(line)
        except _InvalidLine as error:
            raise MalformedHistoryError(number, str(error)) from None
        except KeyError as error:
            raise MalformedHistoryError(number, f"the field {error} is missing") from None

    def _add(self, line: dict[str, Any]) -> None:
        name, operation, outcome = line["client"], line["operation"], line["type"]
        if type(name) is not str or type(line["time_ms"]) is not int or type(operation) is not str:
            raise _InvalidLine("client and operation must be strings, time_ms an integer")
        if type(outcome) is not str or outcome not in OUTCOMES:
            raise _InvalidLine(f"type must be invoke, ok, fail or unknown, not {outcome!r}")
        if operation == "start":
            self._start(name, line)
            return
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(name, self._line)
            self._calls[name] = {}
        if outcome == "invoke":
            invoked = self._invoked.get(operation)
            if invoked is None:
                raise _InvalidLine(f"there is no operation {operation!r} that is invoked")
            call, calls = _integer(line["call"], "call"), self._calls[name]
            if call in calls:
                raise _InvalidLine(f"call {call} of {client} is still under way")
            calls[call] = (operation, invoked(client, line))
            self.history.operation_count += 1
            return
        subject = None
        if "call" in line:
            call = _integer(line["call"], "call")
            invoked_operation, subject = self._calls[name].pop(call, ("", None))
            if invoked_operation != operation:
                raise _InvalidLine(f"{client} has no {operation} under way with call {call}")
        elif operation not in self._alone:
            known = operation in self._completed
            raise _InvalidLine("the field 'call' is missing" if known else f"there is no operation {operation!r}")
        else:
            self.history.operation_count += 1
        if operation in self._completed:
            self._completed[operation](client, subject, outcome, line)
        elif outcome == "ok":
            self._alone[operation](client, line)

    # Clients

    def _start(self, name: str, line: dict[str, Any]) -> None:
        isolation_level = line.get("isolation_level", "read_uncommitted")
        if isolation_level not in ISOLATION_LEVELS:
            raise _InvalidLine(f"isolation_level must be one of {', '.join(ISOLATION_LEVELS)}, not {isolation_level!r}")
        former = self._clients.get(name)
        client = Client(
            name,
            self._line,
            isolation_is_committed=isolation_level == "read_committed",
            is_idempotent=bool(line.get("idempotent", True)),
            acks=_integer(line.get("acks", -1), "acks"),
            group_id=line.get("group_id"),
        )
        if former is not None:
            client.former_transaction = former.transaction or former.former_transaction
        self._clients[name] = client
        self._calls[name] = {}
        self.history.operation_count += 1

    def _topic(self, client: Client, line: dict[str, Any]) -> None:
        if line.get("compacted"):
            self.history.compacted_topics.add(_string(line["topic"], "topic"))

    def _nothing_invoked(self, client: Client, line: dict[str, Any]) -> None:
        """Handle an invocation whose outcome has all fields."""

    # Transactions

    def _begin(self, client: Client, line: dict[str, Any]) -> None:
        former = client.transaction
        if former is not None and not former.commit_line and not former.abort_line:
            raise _InvalidLine(f"{former} has not ended")
        client.transaction = Transaction(
            client, self._line, reads=client.unclaimed_reads, former=former or client.former_transaction
        )
        client.unclaimed_reads = {}
        self.history.transactions.append(client.transaction)

    def _open_transaction(self, client: Client, operation: str) -> Transaction:
        if client.transaction is None:
            raise _InvalidLine(f"{operation} outside a transaction of {client}")
        return client.transaction

    def _commit_invoked(self, client: Client, line: dict[str, Any]) -> Transaction:
        transaction = self._open_transaction(client, "commit")
        transaction.commit_line = transaction.commit_line or self._line
        transaction.possible_commit_count += 1
        transaction.outcome = TransactionOutcome.UNKNOWN
        return transaction

    def _commit_completed(self, client: Client, transaction: Transaction, outcome: str, line: dict[str, Any]) -> None:
        if outcome == "ok":
            self._end(client, transaction, TransactionOutcome.COMMITTED)
        elif outcome == "fail":
            transaction.possible_commit_count -= 1
            if transaction.possible_commit_count == 0 and not transaction.end_line:
                transaction.outcome = TransactionOutcome.ABORTED

    def _abort_invoked(self, client: Client, line: dict[str, Any]) -> Transaction:
        transaction = self._open_transaction(client, "abort")
        transaction.abort_line = transaction.abort_line or self._line
        if transaction.possible_commit_count == 0:
            transaction.outcome = TransactionOutcome.ABORTED
        return transaction

    def _abort_completed(self, client: Client, transaction: Transaction, outcome: str, line: dict[str, Any]) -> None:
        if outcome == "ok":
            self._end(client, transaction, TransactionOutcome.ABORTED)

    def _end(self, client: Client, transaction: Transaction, outcome: TransactionOutcome) -> None:
        if transaction.end_line:
            raise _InvalidLine(f"{transaction} has ended in line {transaction.end_line}")
        transaction.outcome = outcome
        transaction.end_line = self._line
        if client.transaction is transaction:
            client.former_transaction, client.transaction = transaction, None

    # Records sent

    def _send_invoked(self, client: Client, line: dict[str, Any]) -> Send:
        topic, value = _string(line["topic"], "topic"), _string(line["value"], "value")
        former = self.history.sends.get(value)
        if former is not None:
            raise _InvalidLine(f"the value {value!r} was sent in line {former.line} already")
        number = line.get("partition")
        partition = None if number is None else self._partition(topic, number)
        inputs = line.get("inputs")
        send = Send(
            client, self._line, topic, value, partition, client.transaction, inputs and _strings(inputs, "inputs")
        )
        if client.transaction is not None:
            client.transaction.sends.append(send)
        self.history.sends[value] = send
        self.history.topics_sent_to.add(topic)
        return send

    def _send_completed(self, client: Client, send: Send, outcome: str, line: dict[str, Any]) -> None:
        send.outcome_line = self._line
        if outcome == "fail":
            send.outcome = SendOutcome.FAILED
        if outcome != "ok":
            return
        send.outcome = SendOutcome.OK
        number, offset = line.get("partition"), line.get("offset")
        if number is not None:
            partition = self._partition(send.topic, number)
            if send.partition is not None and send.partition is not partition:
                raise _InvalidLine(f"{send.value!r} was sent to {send.partition} and acknowledged in {partition}")
            send.partition = partition
        if send.partition is None:
            raise _InvalidLine("the field 'partition' is missing, here or in the invocation")
        # A record that only the leader has acknowledged may get another offset from another leader.
        if offset is not None and _integer(offset, "offset") >= 0 and client.acks == -1:
            send.acknowledged_offset = offset
            place(self.history, self._line, send, send.partition, offset)

    # Records read

    def _poll(self, client: Client, line: dict[str, Any]) -> None:
        for partition, records in self._by_partition(line["records"]).items():
            run = client.runs.get(partition)
            if run is None:
                run = new_run(self._line, client, partition, None)
            read(self.history, self._line, run, records)

    def _by_partition(self, records: Any) -> dict[Partition, list[tuple[int, str | None]]]:
        """(offset, value) of the read records by partition, in their order."""
        if type(records) is not list:
            raise _InvalidLine("records must be a list")
        found: dict[tuple[str, int], list[tuple[int, str | None]]] = {}
        try:
            for topic, number, offset, value in records:
                if type(offset) is not int or not (value is None or type(value) is str):
                    raise _InvalidLine("a record must be [topic, partition, offset, value]")
                key = (topic, number)
                if key in found:
                    found[key].append((offset, value))
                else:
                    found[key] = [(offset, value)]
        except (TypeError, ValueError):
            raise _InvalidLine("a record must be [topic, partition, offset, value]") from None
        return {self._partition(topic, number): of_one for (topic, number), of_one in found.items()}

    def _final_read_invoked(self, client: Client, line: dict[str, Any]) -> list[Run]:
        ranges = line["ranges"]
        try:
            runs = [
                Run(
                    client,
                    self._partition(topic, number),
                    _integer(start, "start offset"),
                    self._line,
                    end_offset=_integer(end, "end offset"),
                    invoke_line=self._line,
                    next_offset=start,
                )
                for topic, number, start, end in ranges
            ]
        except (TypeError, ValueError):
            raise _InvalidLine("ranges must be a list of [topic, partition, start offset, end offset]") from None
        return runs

    def _final_read_completed(self, client: Client, runs: list[Run], outcome: str, line: dict[str, Any]) -> None:
        if outcome != "ok":
            return
        by_partition = {run.partition: run for run in runs}
        for run in runs:
            run.line = self._line
            run.partition.runs.append(run)
        for partition, records in self._by_partition(line["records"]).items():
            if partition not in by_partition:
                raise _InvalidLine(f"records of {partition}, outside the ranges of the final read")
            read(self.history, self._line, by_partition[partition], records)

    # Positions and offsets

    def _assign(self, client: Client, line: dict[str, Any]) -> None:
        for partition, position in self._partition_offsets(line["partitions"], "partitions"):
            new_run(self._line, client, partition, position)

    def _seek(self, client: Client, line: dict[str, Any]) -> None:
        for partition, position in self._partition_offsets(line["partitions"], "partitions"):
            new_run(self._line, client, partition, position)
            client.seeks[partition] = (self._line, position)

    def _send_offsets_invoked(self, client: Client, line: dict[str, Any]) -> list[OffsetCommit]:
        transaction = self._open_transaction(client, "send_offsets")
        commits = self._offset_commits(client, line, transaction)
        transaction.offset_commits.extend(commits)
        inputs = line.get("inputs")
        if inputs:
            transaction.inputs_without_records.extend((self._line, value) for value in _strings(inputs, "inputs"))
        return commits

    def _commit_offsets_invoked(self, client: Client, line: dict[str, Any]) -> list[OffsetCommit]:
        return self._offset_commits(client, line, None)

    def _offset_commits(
        self, client: Client, line: dict[str, Any], transaction: Transaction | None
    ) -> list[OffsetCommit]:
        group_id = _string(line["group_id"], "group_id")
        commits = []
        for partition, offset in self._partition_offsets(line["offsets"], "offsets"):
            if offset is None:
                raise _InvalidLine("an offset to commit must be an integer")
            seek = client.seeks.get(partition, (0, None))
            commits.append(OffsetCommit(client, group_id, partition, offset, self._line, transaction, seek))
        self.history.offset_commits.extend(commits)
        return commits

    def _offsets_completed(
        self, client: Client, commits: list[OffsetCommit], outcome: str, line: dict[str, Any]
    ) -> None:
        for commit in commits:
            commit.outcome_line = self._line
            if outcome != "unknown":
                commit.outcome = SendOutcome.OK if outcome == "ok" else SendOutcome.FAILED

    def _fetch_offsets_invoked(self, client: Client, line: dict[str, Any]) -> tuple[str, int]:
        return _string(line["group_id"], "group_id"), self._line

    def _fetch_offsets_completed(
        self, client: Client, subject: tuple[str, int], outcome: str, line: dict[str, Any]
    ) -> None:
        self._offsets_fetched(client, subject, outcome, line, is_final=False)

    def _final_offsets_completed(
        self, client: Client, subject: tuple[str, int], outcome: str, line: dict[str, Any]
    ) -> None:
        self._offsets_fetched(client, subject, outcome, line, is_final=True)

    def _offsets_fetched(
        self, client: Client, subject: tuple[str, int], outcome: str, line: dict[str, Any], *, is_final: bool
    ) -> None:
        if outcome != "ok":
            return
        group_id, invoke_line = subject
        for partition, offset in self._partition_offsets(line["offsets"], "offsets"):
            known = None if offset is None or offset < 0 else offset
            self.history.fetched_offsets.append(
                FetchedOffset(client, group_id, partition, known, self._line, invoke_line, is_final)
            )

    def _partition_offsets(self, entries: Any, name: str) -> list[tuple[Partition, int | None]]:
        try:
            found = [
                (self._partition(topic, number), None if offset is None else _integer(offset, "offset"))
                for topic, number, offset in entries
            ]
        except (TypeError, ValueError):
            raise _InvalidLine(f"{name} must be a list of [topic, partition, offset]") from None
        return found

    def _partition(self, topic: Any, number: Any) -> Partition:
        try:
            return self.history.partitions[topic, number]
        except (KeyError, TypeError):
            if type(topic) is not str or type(number) is not int:
                raise _InvalidLine("a topic must be a string and a partition an integer") from None
            partition = self.history.partitions[topic, number] = Partition(topic, number)
            return partition


def _integer(value: Any, name: str) -> int:
    if type(value) is not int:
        raise _InvalidLine(f"{name} must be an integer, not {value!r}")
    return value


def _string(value: Any, name: str) -> str:
    if type(value) is not str:
        raise _InvalidLine(f"{name} must be a string, not {value!r}")
    return value


def _strings(values: Any, name: str) -> list[str]:
    if type(values) is not list or any(type(value) is not str for value in values):
        raise _InvalidLine(f"{name} must be a list of strings")
    return values
