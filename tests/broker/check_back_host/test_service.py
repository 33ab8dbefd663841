"""A broker that checks back: what it asks, ends and records by itself, and what it costs nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.node import Node
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.check_back.question import Answer
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import until
from tests.support.check_back_broker import ScriptedSource, audit, begin, core_of, running_check_back

TWO_PHASE_TIMEOUT_MS = 2**31 - 1


@pytest.mark.parametrize(("answer", "state"), [(Answer.COMMIT, "CompleteCommit"), (Answer.ABORT, "CompleteAbort")])
async def test_it_ends_transactions_of_its_ids_as_the_source_says_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, state: str
) -> None:
    source = ScriptedSource()
    source.answer = answer
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        other = await begin(node, "other")
        mine = await begin(node, "order-1")
        found = node.services.transactions.find
        await until(lambda: _state(found("order-1")) == state)
        assert _state(found("other")) == "Ongoing"
        assert [(one.token, one.partitions) for one in source.asked] == [((*mine, "order-1"), (("out", 0), ("out", 1)))]
        assert other != mine
        assert [record["event"] for record in await _audit_with_end(node)] == ["question", "decision", "end"]
    assert source.is_closed


async def test_its_ids_have_no_time_out_whatever_their_clients_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_check_back(tmp_path, ScriptedSource(), monkeypatch) as node:
        await begin(node, "order-1")
        await begin(node, "other")
        assert _found(node.services.transactions.find("order-1")).timeout_ms == TWO_PHASE_TIMEOUT_MS
        assert _found(node.services.transactions.find("other")).timeout_ms == 60_000


async def test_the_audit_says_who_ended_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        producer = await begin(node, "order-1")
        await until(lambda: source.asked)
        reply = await node.services.transactions.end_transaction(
            "order-1", producer, committed=False, version=TransactionVersion.V2
        )
        assert reply.error is ErrorCode.NONE
        ends = [record for record in await _audit_with_end(node) if record["event"] == "end"]
        assert [(record["who"], record["outcome"], record["decision"]) for record in ends] == [
            ("client", "abort", None)
        ]


async def test_after_a_restart_it_goes_on_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        await begin(node, "order-1")
        await until(lambda: len(source.asked) >= 5)
    source.asked.clear()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        check_back = core_of(node)
        await until(lambda: any(case.is_parked for case in check_back.schedule.cases.values()))
        assert len(source.asked) <= 11  # the last question of the first run may not have been recorded
        (case,) = check_back.schedule.cases.values()
        assert case.checks == 15


async def _audit_with_end(node: Node) -> list[Any]:
    """The audit, once it has the end of a transaction."""
    async with asyncio.timeout(30):
        while True:
            found = await audit(node)
            if any(record["event"] == "end" for record in found):
                return found
            await asyncio.sleep(0.01)


def _state(found: TransactionMetadata | ErrorCode) -> str:
    return found.name if isinstance(found, ErrorCode) else found.state.display_name


def _found(found: TransactionMetadata | ErrorCode) -> TransactionMetadata:
    assert isinstance(found, TransactionMetadata)
    return found


@pytest.mark.parametrize("client_commits", [True, False], ids=["client commits", "client aborts"])
@pytest.mark.parametrize("source_commits", [True, False], ids=["source says commit", "source says abort"])
@pytest.mark.parametrize("is_client_first", [True, False], ids=["client first", "source first"])
async def test_a_race_with_the_client_has_one_outcome_and_both_learn_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client_commits: bool,
    source_commits: bool,
    is_client_first: bool,
) -> None:
    async with running_check_back(tmp_path, ScriptedSource(), monkeypatch) as node:
        transactions = node.services.transactions
        producer = await begin(node, "other-1")  # of no resolver: the two ends are this test's
        start_ms = _found(transactions.find("other-1")).start_ms

        async def client_ends() -> ErrorCode:
            while True:
                reply = await transactions.end_transaction(
                    "other-1", producer, committed=client_commits, version=TransactionVersion.V2
                )
                if reply.error is not ErrorCode.CONCURRENT_TRANSACTIONS:  # else every client repeats it
                    return reply.error

        source_ends = transactions.end_by_check_back("other-1", producer, start_ms, committed=source_commits)
        both = [client_ends(), source_ends] if is_client_first else [source_ends, client_ends()]
        first, second = await asyncio.gather(*both)
        commits = client_commits if is_client_first else source_commits
        assert first is ErrorCode.NONE
        assert second is (ErrorCode.NONE if client_commits is source_commits else ErrorCode.INVALID_TXN_STATE)
        await until(lambda: _state(transactions.find("other-1")).startswith("Complete"))
        assert _state(transactions.find("other-1")) == ("CompleteCommit" if commits else "CompleteAbort")
