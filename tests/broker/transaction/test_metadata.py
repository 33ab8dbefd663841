"""Two-phase commits (KIP-939) as one table: each event, by each session that may come, in each state.

One transactional id has this story: the pair 7:5 wrote (W), sessions kept the transaction and got 7:7 (K1) and 7:8
(K2), the last of them ended it and goes on with 7:9 (N), or with 7:8 where it ended it with EndTxn 4. Each column is a
moment of that story. `test_every_cell` has the states with one pair for many more pairs, `test_kept_cells` the details
of a kept transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.transaction.metadata import TWO_PHASE_COMMIT_TIMEOUT_MS, Producer, TransactionMetadata
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    KEPT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
    TransactionVersion,
)
from fencepost.protocol.errors import ErrorCode
from tests.support.transaction_shard import (
    NOW_MS,
    OUT_0,
    OUT_1,
    TIMEOUT_MS,
    TRANSACTIONAL_ID,
    ShardDriver,
    transaction_in,
)

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
W, K1, K2, N, FOREIGN = Producer(7, 5), Producer(7, 7), Producer(7, 8), Producer(7, 9), Producer(8, 0)
MARKER = Producer(7, 6)
LATER_MS = NOW_MS + 5
LONG_AFTER_MS = NOW_MS + 30 * 86_400_000
PAIRS = {"none": None, "W": W, "K1": K1, "K2": K2, "N": N, "foreign": FOREIGN}

# Columns. PrepareC, PrepareA, CompleteC, CompleteA: K2 has ended it with EndTxn 5; PreC-4, ComC-4: with EndTxn 4.
# Cells: a number is the error that refuses, and nothing has changed (120: TRANSACTION_ABORTABLE); "-": nothing happens.
#   ok      acknowledged, nothing is written            init    the next pair, Empty
#   again   the same pair once more, Empty              keep    the next pair, W's transaction is kept
#   fence   51, and the transaction is being aborted    abort   the same, at nobody's request
#   end     the outcome is decided: its markers have W's epoch + 1 if it was kept or in version 2
#   open    a transaction, with the partition           void    an abort of nothing: complete at once
#   done    Complete                                    gone    the transactional id is forgotten
TABLE = """
event, and the pair that it names | Empty | CompleteC | CompleteA | Ongoing | kept  | PrepareC | PrepareA | PreC-4 | ComC-4
InitProducerId none               | init  | init      | init      | fence   | fence | 51       | 51       | 51     | init
InitProducerId N                  | init  | init      | init      | 90      | 90    | 51       | 51       | 51     | 90
InitProducerId K2                 | again | again     | again     | 90      | fence | 51       | 51       | 51     | init
InitProducerId K1                 | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
InitProducerId W                  | 90    | 90        | 90        | fence   | 90    | 51       | 51       | 51     | 90
InitProducerId foreign            | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
keep none                         | init  | init      | init      | keep    | keep  | 51       | 51       | 51     | init
keep N                            | init  | init      | init      | 90      | 90    | 51       | 51       | 51     | 90
keep K2                           | again | again     | again     | 90      | keep  | 51       | 51       | 51     | init
keep K1                           | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
keep W                            | 90    | 90        | 90        | keep    | 90    | 51       | 51       | 51     | 90
keep foreign                      | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
add N                             | open  | open      | open      | 90      | 90    | 51       | 51       | 51     | 90
add K2                            | 90    | 90        | 90        | 90      | 48    | 51       | 51       | 51     | open
add K1                            | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
add W                             | 90    | 90        | 90        | open    | 90    | 51       | 51       | 51     | 90
add foreign                       | 49    | 49        | 49        | 49      | 49    | 51       | 51       | 51     | 49
verify N                          | 120   | 120       | 120       | 90      | 90    | 51       | 51       | 90     | 90
verify K2                         | 90    | 90        | 90        | 90      | 48    | 90       | 90       | 51     | 120
verify K1                         | 90    | 90        | 90        | 90      | 90    | 90       | 90       | 90     | 90
verify W                          | 90    | 90        | 90        | ok      | 90    | 90       | 90       | 90     | 90
verify foreign                    | 49    | 49        | 49        | 49      | 49    | 49       | 49       | 49     | 49
commit-5 N                        | 48    | 48        | 48        | 90      | 90    | 51       | 51       | 51     | 90
commit-5 K2                       | 90    | ok        | 48        | 90      | end   | 51       | 51       | 51     | 48
commit-5 K1                       | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
commit-5 W                        | 90    | 90        | 90        | end     | 90    | 51       | 51       | 51     | 90
commit-5 foreign                  | 49    | 49        | 49        | 49      | 49    | 51       | 51       | 51     | 49
abort-5 N                         | void  | void      | void      | 90      | 90    | 51       | 51       | 51     | 90
abort-5 K2                        | 90    | 48        | ok        | 90      | end   | 51       | 51       | 51     | void
abort-5 K1                        | 90    | 90        | 90        | 90      | 90    | 51       | 51       | 51     | 90
abort-5 W                         | 90    | 90        | 90        | end     | 90    | 51       | 51       | 51     | 90
abort-5 foreign                   | 49    | 49        | 49        | 49      | 49    | 51       | 51       | 51     | 49
commit-4 N                        | 48    | ok        | 48        | 90      | 90    | 51       | 51       | 90     | 90
commit-4 K2                       | 90    | 90        | 90        | 90      | end   | 90       | 90       | 51     | ok
commit-4 K1                       | 90    | 90        | 90        | 90      | 90    | 90       | 90       | 90     | 90
commit-4 W                        | 90    | 90        | 90        | end     | 90    | 90       | 90       | 90     | 90
commit-4 foreign                  | 49    | 49        | 49        | 49      | 49    | 49       | 49       | 49     | 49
abort-4 N                         | 48    | 48        | ok        | 90      | 90    | 51       | 51       | 90     | 90
abort-4 K2                        | 90    | 90        | 90        | 90      | end   | 90       | 90       | 51     | 48
abort-4 K1                        | 90    | 90        | 90        | 90      | 90    | 90       | 90       | 90     | 90
abort-4 W                         | 90    | 90        | 90        | end     | 90    | 90       | 90       | 90     | 90
abort-4 foreign                   | 49    | 49        | 49        | 49      | 49    | 49       | 49       | 49     | 49
administrator's-abort none        | 48    | 48        | 48        | abort   | abort | 51       | 51       | 51     | 48
time-out none                     | -     | -         | -         | abort   | abort | -        | -        | -      | -
thirty-days none                  | gone  | gone      | gone      | -       | -     | -        | -        | -      | gone
markers none                      | -     | -         | -         | -       | -     | done     | done     | done   | -
"""  # noqa: E501

ERRORS = {
    "48": ErrorCode.INVALID_TXN_STATE,
    "49": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "51": ErrorCode.CONCURRENT_TRANSACTIONS,
    "90": ErrorCode.PRODUCER_FENCED,
    "120": ErrorCode.TRANSACTION_ABORTABLE,
}


class Row(NamedTuple):
    """One cell with its event and column."""

    event: str
    pair: str
    column: str
    cell: str


def rows() -> Iterator[Row]:
    heading, *lines = (line.split("|") for line in TABLE.strip().splitlines())
    columns = [name.strip() for name in heading[1:]]
    for line in lines:
        event, pair = line[0].split()
        for column, cell in zip(columns, line[1:], strict=True):
            yield Row(event, pair, column, cell.strip())


def moment(column: str, *, timeout_ms: int) -> TransactionMetadata:
    """The transaction in the state of a column."""
    states = {
        "Empty": (EMPTY, N, 7, None),
        "CompleteC": (COMPLETE_COMMIT, N, 7, None),
        "CompleteA": (COMPLETE_ABORT, N, 7, None),
        "Ongoing": (ONGOING, W, -1, None),
        "kept": (KEPT, W, -1, K2),
        "PrepareC": (PREPARE_COMMIT, MARKER, 7, N),
        "PrepareA": (PREPARE_ABORT, MARKER, 7, N),
        "PreC-4": (PREPARE_COMMIT, MARKER, -1, K2),
        "ComC-4": (COMPLETE_COMMIT, K2, -1, None),
    }
    state, producer, previous_id, next_pair = states[column]
    metadata = transaction_in(
        ONGOING if state is KEPT else state, producer=producer, previous_producer_id=previous_id, timeout_ms=timeout_ms
    )
    if next_pair is not None:
        metadata = metadata._replace(
            next_producer_id=next_pair.producer_id, next_producer_epoch=next_pair.producer_epoch
        )
    return metadata._replace(state=state)


def decide(driver: ShardDriver, event: str, pair: Producer | None) -> Decision[Any]:
    shard, now_ms = driver.shard, LATER_MS
    if event in ("InitProducerId", "keep"):
        return shard.decide_init_producer_id(
            TRANSACTIONAL_ID, timeout_ms=TIMEOUT_MS, expected=pair, now_ms=now_ms, keep_prepared=event == "keep"
        )
    if event == "time-out":
        return shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1)
    if event == "thirty-days":
        return shard.decide_deadline(LONG_AFTER_MS)
    if event == "markers":
        return shard.decide_completion(TRANSACTIONAL_ID, now_ms=now_ms)
    if event == "administrator's-abort":
        return shard.decide_abort(TRANSACTIONAL_ID, now_ms=now_ms)
    assert pair is not None
    if event == "add":
        return shard.decide_add_partitions(TRANSACTIONAL_ID, pair, (OUT_1,), version=V2, now_ms=now_ms)
    if event == "verify":
        reply = shard.verify_partitions(TRANSACTIONAL_ID, pair, (OUT_0,))[OUT_0]
        assert shard.is_partition_confirmed(TRANSACTIONAL_ID, *pair, OUT_0) == (reply is ErrorCode.NONE)
        return Decision(reply)
    outcome, _, version = event.partition("-")
    return shard.decide_end_transaction(
        TRANSACTIONAL_ID, pair, committed=outcome == "commit", version=V2 if version == "5" else V1, now_ms=now_ms
    )


class After(NamedTuple):
    """What is stored after an event: the state, the pair of the records or markers, and that of the newest session."""

    state: TransactionState
    producer: Producer
    client: Producer
    partitions: frozenset[Any]
    timeout_ms: int


def view(metadata: TransactionMetadata | None) -> After | None:
    if metadata is None:
        return None
    return After(metadata.state, metadata.producer, metadata.client, metadata.partitions, metadata.timeout_ms)


def following(pair: Producer) -> Producer:
    return Producer(pair.producer_id, pair.producer_epoch + 1)


def ended(before: TransactionMetadata, *, committed: bool, version: TransactionVersion) -> tuple[Any, After]:
    """The reply to the end of an open transaction, and what is stored then."""
    is_kept = before.state is KEPT
    client = following(before.client) if version is V2 else before.client
    marker = following(W) if is_kept or version is V2 else W
    state = PREPARE_COMMIT if committed else PREPARE_ABORT
    # Without two pairs the one that is stored is the one that goes on.
    return client, After(state, marker, client if is_kept else marker, before.partitions, before.timeout_ms)


def expected_of(row: Row, before: TransactionMetadata) -> tuple[Any, After | None]:
    """The reply that a cell stands for, and what is stored then."""
    unchanged = view(before)
    stored = before.producer
    outcome, _, number = row.event.partition("-")
    version = V1 if number == "4" else V2
    match row.cell:
        case "-":
            return None, unchanged
        case "gone":
            return None, None
        case "ok" if row.event == "verify":
            return ErrorCode.NONE, unchanged
        case "ok":
            return ProducerReply(ErrorCode.NONE, *stored), unchanged
        case "init" | "again":
            pair = following(stored) if row.cell == "init" else stored
            return ProducerReply(ErrorCode.NONE, *pair), After(EMPTY, pair, pair, frozenset(), TIMEOUT_MS)
        case "keep":
            pair = following(before.client)
            after = After(KEPT, W, pair, before.partitions, before.timeout_ms)
            return ProducerReply(ErrorCode.NONE, *pair, ongoing=W), after
        case "fence" | "abort":
            _, after = ended(before, committed=False, version=V2)
            reply = {"fence": ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS), "time-out": None}.get(
                row.event if row.cell == "abort" else "fence", ErrorCode.NONE
            )
            return reply, after
        case "end":
            client, after = ended(before, committed=outcome == "commit", version=version)
            return ProducerReply(ErrorCode.NONE, *client), after
        case "open":
            is_open = before.state is ONGOING
            partitions = before.partitions | {OUT_1} if is_open else frozenset({OUT_1})
            return ErrorCode.NONE, After(ONGOING, stored, stored, partitions, before.timeout_ms)
        case "void":
            pair = following(stored)
            after = After(COMPLETE_ABORT, pair, pair, frozenset(), before.timeout_ms)
            return ProducerReply(ErrorCode.NONE, *pair), after
        case "done":
            state = COMPLETE_COMMIT if before.state is PREPARE_COMMIT else COMPLETE_ABORT
            return None, After(state, before.client, before.client, frozenset(), before.timeout_ms)
    error = ERRORS[row.cell]
    is_bare = row.event in ("add", "verify", "administrator's-abort")
    return error if is_bare else ProducerReply(error), unchanged


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.event} by {row.pair} in {row.column}") for row in rows()])
def test_a_cell_of_the_table(row: Row) -> None:
    driver = ShardDriver(version=V2)
    before = moment(row.column, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS if row.event == "thirty-days" else TIMEOUT_MS)
    driver.put(before)
    reply, after = expected_of(row, before)
    assert driver.do(decide(driver, row.event, PAIRS[row.pair])) == reply
    assert view(driver.shard.transactions.get(TRANSACTIONAL_ID)) == after
    assert driver.replayed().transactions == driver.shard.transactions


def test_the_columns_are_what_the_story_leads_to() -> None:
    """Each column, but the first, is reached from the one before by the events that the story tells of."""

    def told(*events: tuple[str, Producer | None]) -> TransactionMetadata:
        driver = ShardDriver(version=V2)
        driver.put(moment("Ongoing", timeout_ms=TIMEOUT_MS))
        for event, pair in events:
            driver.do(decide(driver, event, pair))
        return driver.transaction

    keeps: list[tuple[str, Producer | None]] = [("keep", None)] * 3
    for column, events in {
        "kept": keeps,
        "PrepareC": [*keeps, ("commit-5", K2)],
        "PrepareA": [*keeps, ("abort-5", K2)],
        "CompleteC": [*keeps, ("commit-5", K2), ("markers", None)],
        "CompleteA": [*keeps, ("abort-5", K2), ("markers", None)],
        "PreC-4": [*keeps, ("commit-4", K2)],
        "ComC-4": [*keeps, ("commit-4", K2), ("markers", None)],
    }.items():
        want = moment(column, timeout_ms=TIMEOUT_MS)
        is_old = column.endswith("-4")
        assert told(*events)._replace(last_update_ms=NOW_MS) == want._replace(
            client_transaction_version=V1 if is_old else V2
        ), column
