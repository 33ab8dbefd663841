"""Ways to make a legal history wrong in exactly one respect.

Each mutation changes the lines in place and returns whether the history had a place for it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fencepost.history.findings import Anomaly
from fencepost.history.loader import load_history
from fencepost.history.model import History, Send, SendOutcome, Transaction, TransactionOutcome

Line: TypeAlias = dict[str, Any]
Mutation: TypeAlias = Callable[["MutableHistory"], bool]


class MutableHistory:
    """The lines as objects, beside what the checker's loader made of them; line numbers count from 1."""

    def __init__(self, lines: list[bytes], seed: int) -> None:
        self.lines: list[Line] = [json.loads(line) for line in lines]
        self.random = random.Random(seed)
        self.history: History = load_history(lines)

    def encoded(self) -> list[bytes]:
        return [json.dumps(line).encode() + b"\n" for line in self.lines]

    def any(self, candidates: list[Any]) -> Any:
        return self.random.choice(candidates) if candidates else None

    def sends(self) -> list[Send]:
        return list(self.history.sends.values())

    def acknowledged(self, *, in_transaction: bool) -> list[Send]:
        """Idempotent producers' acknowledged records that the final read has."""
        return [
            send
            for send in self.sends()
            if send.outcome is SendOutcome.OK
            and send.client.is_idempotent
            and send.final_read_line
            and (send.transaction is not None) is in_transaction
        ]

    def transactions(self, outcome: TransactionOutcome) -> list[Transaction]:
        return [one for one in self.history.transactions if one.outcome is outcome]

    def reads(self) -> Iterator[Line]:
        for line in self.lines:
            if line["operation"] in ("poll", "final_read") and line["type"] == "ok":
                yield line

    def final_read(self, send: Send) -> Line:
        """The final read of the record's partition."""
        assert send.partition is not None
        place = [send.partition.topic, send.partition.number]
        at = next(n for n, one in enumerate(self.lines) if one.get("ranges") and one["ranges"][0][:2] == place)
        return next(one for one in self.lines[at:] if one["type"] == "ok" and one["operation"] == "final_read")

    def insert_into_final_read(self, send: Send) -> None:
        assert send.partition is not None
        records = self.final_read(send)["records"]
        records.append([send.partition.topic, send.partition.number, send.offset, send.value])
        records.sort(key=lambda record: record[2])

    def append_to_final_read(self, send: Send, value: str) -> None:
        """Puts a record at the log end offset."""
        assert send.partition is not None
        outcome = self.final_read(send)
        invocation = next(one for one in self.lines if one.get("ranges") and one["call"] == outcome["call"])
        end = invocation["ranges"][0][3]
        invocation["ranges"][0][3] += 1
        outcome["records"].append([send.partition.topic, send.partition.number, end, value])


def remove(line: Line, value: str) -> None:
    line["records"] = [record for record in line["records"] if record[3] != value]


def lose_a_record(mutable: MutableHistory) -> bool:
    send = mutable.any(mutable.acknowledged(in_transaction=False))
    if send is None:
        return False
    for line in mutable.reads():
        remove(line, send.value)
    return True


def lose_a_transaction(mutable: MutableHistory) -> bool:
    transactions = [
        one
        for one in mutable.transactions(TransactionOutcome.COMMITTED)
        if any(send.outcome is SendOutcome.OK for send in one.sends) and not one.offset_commits
    ]
    transaction = mutable.any(transactions)
    if transaction is None:
        return False
    for line in mutable.reads():
        for send in transaction.sends:
            remove(line, send.value)
    return True


def tear_a_transaction(mutable: MutableHistory) -> bool:
    sends = [
        send
        for send in mutable.acknowledged(in_transaction=True)
        if send.transaction and sum(one.final_read_line > 0 for one in send.transaction.sends) > 1
    ]
    send = mutable.any(sends)
    if send is None:
        return False
    remove(mutable.final_read(send), send.value)
    return True


def show_an_uncommitted_transaction_to_one_consumer(mutable: MutableHistory) -> bool:
    sends = [
        send
        for one in mutable.transactions(TransactionOutcome.UNKNOWN)
        if not one.is_committed and not one.offset_commits
        for send in one.sends
        if send.outcome is SendOutcome.OK
    ]
    send = mutable.any(sends)
    if send is None:
        return False
    final = next(n for n, one in enumerate(mutable.lines) if one["client"] == "final")
    record = [send.partition.topic, send.partition.number, send.offset, send.value]
    common = {"time_ms": 0, "client": "watcher", "type": "ok"}
    mutable.lines[final:final] = [
        {**common, "operation": "start", "isolation_level": "read_committed"},
        {**common, "operation": "poll", "records": [record]},
    ]
    return True


def take_final_offsets_back(mutable: MutableHistory) -> bool:
    """Of a transaction with records that can be read."""
    for line in mutable.lines:
        if line["operation"] == "final_offsets" and line["type"] == "ok":
            for entry in line["offsets"]:
                commits = [
                    one
                    for one in mutable.history.offset_commits
                    if (one.partition.topic, one.partition.number, one.offset) == tuple(entry)
                    and one.transaction is not None
                    and one.transaction.outcome is TransactionOutcome.COMMITTED
                    and any(send.committed_read_line for send in one.transaction.sends)
                    and one.group_id == ("app" if one.client.name == "app" else "quiet")
                ]
                invocation = next(
                    one for one in mutable.lines if one.get("call") == line["call"] and one["client"] == "final"
                )
                if any(one.group_id == invocation["group_id"] for one in commits):
                    entry[2] = None
                    return True
    return False


def skip_a_record(mutable: MutableHistory) -> bool:
    candidates = []
    for line in mutable.reads():
        if line["operation"] == "poll" and len({(topic, number) for topic, number, *_ in line["records"]}) == 1:
            inner = [record for record in line["records"][1:-1] if mutable.history.sends[record[3]].transaction is None]
            candidates += [(line, record) for record in inner]
    chosen = mutable.any(candidates)
    if chosen is None:
        return False
    chosen[0]["records"].remove(chosen[1])
    return True


def duplicate_a_record(mutable: MutableHistory) -> bool:
    send = mutable.any(mutable.acknowledged(in_transaction=False) + mutable.acknowledged(in_transaction=True))
    if send is None:
        return False
    mutable.append_to_final_read(send, send.value)
    return True


def read_unsent_value(mutable: MutableHistory) -> bool:
    send = mutable.any(mutable.acknowledged(in_transaction=False))
    if send is None:
        return False
    mutable.append_to_final_read(send, "sent by nobody")
    return True


def _deliver(mutable: MutableHistory, outcome: TransactionOutcome) -> bool:
    sends = [
        send for one in mutable.transactions(outcome) for send in one.sends if send.acknowledged_offset is not None
    ]
    send = mutable.any(sends)
    if send is None:
        return False
    mutable.insert_into_final_read(send)
    return True


def deliver_an_aborted_record(mutable: MutableHistory) -> bool:
    return _deliver(mutable, TransactionOutcome.ABORTED)


def deliver_a_record_of_a_transaction_that_died_open(mutable: MutableHistory) -> bool:
    return _deliver(mutable, TransactionOutcome.OPEN)


def swap_two_records_of_a_poll(mutable: MutableHistory) -> bool:
    polls = [line for line in mutable.reads() if line["operation"] == "poll" and len(line["records"]) > 1]
    line = mutable.any(polls)
    if line is None:
        return False
    records = line["records"]
    at = mutable.random.randrange(len(records) - 1)
    records[at], records[at + 1] = records[at + 1], records[at]
    return True


def _exchange_offsets(mutable: MutableHistory, may: Callable[[Send, Send], bool]) -> bool:
    """Lets two neighbours in a log change places, where nobody read either before both could be read."""
    pairs = []
    for send in mutable.sends():
        if send.acknowledged_offset is None or send.partition is None or not send.client.is_idempotent:
            continue
        other = send.partition.log.get(send.acknowledged_offset + 1)
        if other is None or other.acknowledged_offset is None or not other.client.is_idempotent:
            continue
        settled = max(
            max(one.outcome_line, one.transaction.commit_line if one.transaction else 0) for one in (send, other)
        )
        first_read = min((one.read_line for one in (send, other) if one.read_line), default=settled + 1)
        parted = any(
            one.partition is send.partition and one.offset == other.acknowledged_offset
            for one in mutable.history.offset_commits
        )
        if first_read > settled and not parted and may(send, other):
            pairs.append((send, other))
    chosen = mutable.any(pairs)
    if chosen is None:
        return False
    one, other = chosen
    swapped = {one.value: other.value, other.value: one.value}
    for line in mutable.reads():
        for record in line["records"]:
            record[3] = swapped.get(record[3], record[3])
    for send, offset in [(one, other.offset), (other, one.offset)]:
        mutable.lines[send.outcome_line - 1]["offset"] = offset
    return True


def exchange_records_of_one_producer(mutable: MutableHistory) -> bool:
    return _exchange_offsets(
        mutable, lambda one, other: one.client is other.client and one.transaction is other.transaction
    )


def exchange_records_of_transactions_one_after_the_other(mutable: MutableHistory) -> bool:
    def may(one: Send, other: Send) -> bool:
        return (
            one.client.name != other.client.name
            and all(send.transaction is not None and send.transaction.is_committed for send in (one, other))
            and one.outcome_line < other.line
        )

    return _exchange_offsets(mutable, may)


def acknowledge_with_the_offset_of_another(mutable: MutableHistory) -> bool:
    sends = [send for send in mutable.sends() if send.acknowledged_offset is not None and send.client.is_idempotent]
    pairs = [
        (one, other)
        for one in sends
        for other in sends
        if one is not other and one.partition is other.partition and one.transaction is None is other.transaction
    ]
    chosen = mutable.any(pairs)
    if chosen is None:
        return False
    mutable.lines[chosen[0].outcome_line - 1]["offset"] = chosen[1].offset
    return True


def take_a_group_back(mutable: MutableHistory) -> bool:
    commits = [
        one
        for one in mutable.history.offset_commits
        if one.group_id == "quiet" and one.surely_took_effect and one.transaction is not None
    ]
    last = {one.partition: one for one in commits}
    candidates = [
        (one, former)
        for one in last.values()
        for former in commits
        if former.partition is one.partition and former.offset < one.offset
        # Of two that were under way together nobody knows which came first.
        if former.transaction is not None and former.transaction.known_line < one.line
    ]
    chosen = mutable.any(candidates)
    if chosen is None:
        return False
    commit, former = chosen
    place = [commit.partition.topic, commit.partition.number]
    lowered = former.offset - 1
    quiet_calls: set[int] = set()
    mutable.lines[commit.line - 1]["offsets"] = [[*place, lowered]]
    for line in mutable.lines[commit.line :]:
        asked = (line.get("group_id"), line["operation"]) == ("quiet", "final_offsets")
        quiet_calls |= {line["call"]} if asked else set()
        if line["operation"] == "final_offsets" and "offsets" in line and line["call"] in quiet_calls:
            line["offsets"] = [[*place, lowered] if one == [*place, commit.offset] else one for one in line["offsets"]]
    return True


def _committed_inputs(mutable: MutableHistory) -> list[tuple[Line, str, Transaction]]:
    return [
        (mutable.lines[commit.line - 1], value, one)
        for one in mutable.history.transactions
        if one.is_committed
        for commit in one.offset_commits
        for value in mutable.lines[commit.line - 1].get("inputs", [])
    ]


def process_an_input_twice(mutable: MutableHistory) -> bool:
    inputs = _committed_inputs(mutable)
    first, last = (inputs[0], inputs[-1]) if inputs else (None, None)
    if first is None or last is None or first[2] is last[2]:
        return False
    last[0]["inputs"].append(first[1])
    return True


def never_process_an_input(mutable: MutableHistory) -> bool:
    first_values: set[str] = set()
    for partition in mutable.history.partitions.values():
        named = {value for _, value, _ in _committed_inputs(mutable)}
        first = next((offset for offset in sorted(partition.log) if partition.log[offset].value in named), None)
        if first is not None:
            first_values.add(partition.log[first].value)
    candidates = [value for _, value, _ in _committed_inputs(mutable) if value not in first_values]
    chosen = mutable.any(candidates)
    if chosen is None:
        return False
    for line in mutable.lines:
        if "inputs" in line:
            line["inputs"] = [value for value in line["inputs"] if value != chosen]
    return True


def let_transactions_read_from_each_other(mutable: MutableHistory) -> bool:
    candidates = []
    committed = [
        one
        for one in mutable.transactions(TransactionOutcome.COMMITTED)
        if any(send.acknowledged_offset is not None for send in one.sends)
    ]
    for one in committed:
        for other in committed:
            sends = [next(send for send in each.sends if send.acknowledged_offset is not None) for each in (one, other)]
            first_commit = min(one.commit_line, other.commit_line)
            if one.client is not other.client and all(send.outcome_line < first_commit for send in sends):
                candidates.append((first_commit, sends[0], sends[1]))
    chosen = mutable.any(candidates)
    if chosen is None:
        return False
    first_commit, one_send, other_send = chosen
    polls = []
    for reader, send in [(one_send.client, other_send), (other_send.client, one_send)]:
        common = {"time_ms": 0, "client": reader.name, "type": "ok"}
        place = [send.partition.topic, send.partition.number]
        polls += [
            {**common, "operation": "assign", "partitions": [[*place, None]]},
            {**common, "operation": "poll", "records": [[*place, send.offset, send.value]]},
            {**common, "operation": "assign", "partitions": [[*place, None]]},
        ]
    mutable.lines[first_commit - 1 : first_commit - 1] = polls
    return True


MUTATIONS: list[tuple[Mutation, Anomaly]] = [
    (lose_a_record, Anomaly.LOST_WRITE),
    (lose_a_transaction, Anomaly.LOST_WRITE),
    (tear_a_transaction, Anomaly.TORN_TRANSACTION),
    (show_an_uncommitted_transaction_to_one_consumer, Anomaly.TORN_TRANSACTION),
    (take_final_offsets_back, Anomaly.TORN_TRANSACTION),
    (skip_a_record, Anomaly.SKIPPED_READ),
    (duplicate_a_record, Anomaly.DUPLICATE),
    (read_unsent_value, Anomaly.FOREIGN_READ),
    (deliver_an_aborted_record, Anomaly.ABORTED_READ),
    (deliver_a_record_of_a_transaction_that_died_open, Anomaly.DIRTY_READ),
    (swap_two_records_of_a_poll, Anomaly.NONMONOTONIC_POLL),
    (exchange_records_of_one_producer, Anomaly.NONMONOTONIC_SEND),
    (exchange_records_of_transactions_one_after_the_other, Anomaly.WRITE_CYCLE),
    (acknowledge_with_the_offset_of_another, Anomaly.INCONSISTENT_OFFSET),
    (take_a_group_back, Anomaly.OFFSET_REGRESSION),
    (process_an_input_twice, Anomaly.INPUT_PROCESSED_TWICE),
    (never_process_an_input, Anomaly.INPUT_NEVER_PROCESSED),
    (let_transactions_read_from_each_other, Anomaly.READ_CYCLE),
]
