"""The answer to "why is my last stable offset stuck?", case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.diagnosis.lag import Lag
from fencepost.diagnosis.stuck import (
    UNLIMITED_TIMEOUT_MS,
    Cause,
    Client,
    CoordinatorView,
    Facts,
    OpenTransaction,
    Remedy,
    WaitingGroup,
    began_ms,
    explain,
    holder_of,
)

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOLDER = OpenTransaction(4, 0, 6, NOW_MS - 14 * MINUTE_MS, 0)
COORDINATOR = CoordinatorView("stuck-1", "Ongoing", 4, 0, 15 * MINUTE_MS, NOW_MS - 14 * MINUTE_MS, (("orders", 3),))
STUCK = Facts(
    "orders",
    3,
    NOW_MS,
    high_watermark=17,
    last_stable_offset=6,
    open=[HOLDER],
    coordinator=COORDINATOR,
    client=Client("10.0.0.7:51422", "stuck-client", "rdkafka 2.16", "User:shop", True, NOW_MS - 14 * MINUTE_MS),
    waiting=[WaitingGroup("billing", Lag(11, 0, 11)), WaitingGroup("audit", Lag(11, 0, 11))],
    own_records=5,
    committed_behind=5,
)


def test_the_whole_chain_down_to_the_clients_address() -> None:
    found = explain(STUCK)
    assert found.sentence == (
        "orders-3: read_committed readers stop at offset 6; 11 offsets wait behind it, for 14 min. "
        "The transaction of stuck-1 is still open, and has 60 s left."
    )
    assert [(link.kind, link.name) for link in found.chain] == [
        ("partition", "orders-3"),
        ("transaction", "open from offset 6"),
        ("producer", "4:0"),
        ("transactional id", "stuck-1"),
        ("client", "stuck-client"),
    ]
    assert found.chain[-1].details == (
        "rdkafka 2.16",
        "User:shop",
        "10.0.0.7:51422",
        "connection open",
        "last request 14 min ago",
    )
    assert found.consequences == (
        "Waiting for it: billing (blocked: 11), audit (blocked: 11).",
        "Behind it wait 5 records that others have committed.",
    )
    assert [remedy for remedy, _ in found.advice] == [Remedy.WAIT, Remedy.ABORT]


@pytest.mark.parametrize(
    ("facts", "cause", "remedies"),
    [
        (replace(STUCK, last_stable_offset=17, open=[]), Cause.NOT_STUCK, []),
        (replace(STUCK, coordinator=replace(COORDINATOR, timeout_ms=MINUTE_MS)), Cause.TIMED_OUT, ["wait", "abort"]),
        (
            replace(STUCK, coordinator=replace(COORDINATOR, state="PrepareCommit")),
            Cause.PREPARE_COMMIT,
            ["wait", "look at the broker"],
        ),
        (
            replace(STUCK, coordinator=replace(COORDINATOR, timeout_ms=UNLIMITED_TIMEOUT_MS)),
            Cause.TWO_PHASE,
            ["wait", "abort"],
        ),
        (replace(STUCK, coordinator=None), Cause.HANGING, ["abort hanging"]),
        (replace(STUCK, coordinator=replace(COORDINATOR, producer_id=9)), Cause.HANGING, ["abort hanging"]),
        (replace(STUCK, coordinator=replace(COORDINATOR, partitions=())), Cause.HANGING, ["abort hanging"]),
        (replace(STUCK, coordinator=replace(COORDINATOR, state="CompleteAbort")), Cause.HANGING, ["abort hanging"]),
        (
            replace(STUCK, coordinator=None, coordinator_error="it loads"),
            Cause.COORDINATOR_NOT_AVAILABLE,
            ["look again"],
        ),
        (replace(STUCK, open=[]), Cause.NOT_DURABLE, ["look again", "look at the broker"]),
        (replace(STUCK, partition_error="KAFKA_STORAGE_ERROR"), Cause.OFFLINE, ["look at the broker"]),
    ],
)
def test_each_cause_has_its_remedies(facts: Facts, cause: Cause, remedies: list[str]) -> None:
    found = explain(facts)
    assert found.cause is cause
    assert [remedy.value.replace("reload", "look again") for remedy, _ in found.advice] == remedies
    assert found.sentence.startswith("orders-3")
    assert found.sentence.endswith(".")


def test_what_is_decided_does_not_time_out() -> None:
    for state, cause in (("PrepareCommit", Cause.PREPARE_COMMIT), ("PrepareAbort", Cause.PREPARE_ABORT)):
        for timeout_ms in (1, UNLIMITED_TIMEOUT_MS):
            known = replace(COORDINATOR, state=state, timeout_ms=timeout_ms)
            assert known.deadline_ms is None
            assert explain(replace(STUCK, coordinator=known)).cause is cause


def test_a_transaction_behind_the_last_stable_offset_does_not_hold_it() -> None:
    """What held it has ended between two questions, or its end is not durable yet."""
    later = replace(HOLDER, first_offset=9)
    assert holder_of([later], 6) is None
    assert holder_of([later, HOLDER], 6) == HOLDER
    found = explain(replace(STUCK, open=[later]))
    assert (found.cause, found.holder) == (Cause.NOT_DURABLE, None)


def test_a_transaction_began_when_its_coordinator_says_else_with_its_first_record_else_it_wrote_last() -> None:
    holder = replace(HOLDER, began_ms=NOW_MS - 5 * MINUTE_MS)
    assert began_ms(holder, ("orders", 3), COORDINATOR) == COORDINATOR.started_ms
    assert began_ms(holder, ("orders", 4), COORDINATOR) == holder.began_ms
    assert began_ms(HOLDER, ("orders", 3), None) == HOLDER.last_write_ms
    assert began_ms(replace(HOLDER, last_write_ms=-1), ("orders", 3), None) is None
    assert "for 5 min. The transaction of producer 4 hangs" in (
        explain(replace(STUCK, open=[holder], coordinator=None)).sentence
    )


def test_a_live_transaction_is_never_called_hanging() -> None:
    """Its end would be torn apart: only the coordinator may abort what it knows."""
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        facts = replace(STUCK, coordinator=replace(COORDINATOR, state=state))
        assert all(remedy is not Remedy.ABORT_HANGING for remedy, _ in explain(facts).advice)


def test_what_is_not_known_of_the_client_is_said() -> None:
    link = explain(replace(STUCK, client=None, client_missing="no HTTP port")).chain[-1]
    assert (link.name, link.details, link.missing) == ("not known", ("no HTTP port",), True)


def test_the_oldest_of_several_holds() -> None:
    later = OpenTransaction(2, 0, 9, NOW_MS, 0)
    found = explain(replace(STUCK, open=[later, HOLDER]))
    assert found.holder == HOLDER
    assert "1 other open behind it" in found.chain[1].details
