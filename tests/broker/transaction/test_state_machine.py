"""The tables: total, and leading only where a transaction may go."""

from __future__ import annotations

import pytest

from fencepost.broker.transaction.state_machine import (
    ALLOWED_PREVIOUS,
    ANSWERED_CONCURRENT_BEFORE_FENCING,
    TABLES,
    VERSION_1,
    VERSION_2,
    TableAction,
    TransactionEvent,
    TransactionState,
    TransactionVersion,
    lookup,
)
from fencepost.protocol.errors import ErrorCode

RETRIES = {TransactionEvent.RETRY_COMMIT, TransactionEvent.RETRY_ABORT}
CELLS = [
    pytest.param(version, event, state, id=f"{version.name}-{event.name}-{state.name}")
    for version, table in TABLES.items()
    for event in table
    for state in TransactionState
]


def test_every_version_has_a_table() -> None:
    assert set(TABLES) == set(TransactionVersion)


def test_version_2_knows_every_event_and_version_1_all_but_the_retries() -> None:
    assert set(VERSION_2) == set(TransactionEvent)
    assert set(VERSION_1) == set(TransactionEvent) - RETRIES


def test_every_row_has_a_cell_for_every_state() -> None:
    for table in TABLES.values():
        for row in table.values():
            assert len(row) == len(TransactionState)


def test_columns_are_in_the_order_of_the_stored_numbers() -> None:
    assert [int(state) for state in TransactionState] == list(range(7))


@pytest.mark.parametrize(("version", "event", "state"), CELLS)
def test_a_cell_leads_only_to_a_state_that_may_follow(
    version: TransactionVersion, event: TransactionEvent, state: TransactionState
) -> None:
    cell = lookup(version, event, state)
    assert isinstance(cell, TransactionState | ErrorCode | TableAction)
    if isinstance(cell, TransactionState):
        assert state in ALLOWED_PREVIOUS[cell]


@pytest.mark.parametrize("version", TransactionVersion)
def test_nothing_but_written_markers_leads_out_of_a_prepared_state(version: TransactionVersion) -> None:
    for event, row in TABLES[version].items():
        for state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
            if isinstance(row[state], TransactionState):
                assert event is TransactionEvent.MARKERS_WRITTEN


@pytest.mark.parametrize("version", TransactionVersion)
def test_what_waits_for_a_prepared_transaction_is_answered_concurrent_by_the_table(version: TransactionVersion) -> None:
    for event in ANSWERED_CONCURRENT_BEFORE_FENCING[version]:
        for state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
            assert lookup(version, event, state) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("version", TransactionVersion)
def test_every_state_can_be_reached_from_the_first(version: TransactionVersion) -> None:
    reached = {TransactionState.EMPTY}
    while True:
        further = {
            cell
            for row in TABLES[version].values()
            for state in reached
            if isinstance(cell := row[state], TransactionState)
        }
        if further <= reached:
            break
        reached |= further
    assert reached == set(TransactionState)
