"""What a sink's decision means for the batch that is written now."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from fencepost.spark.decisions import (
    Batch,
    Decision,
    Latest,
    NotPreparedAnyMore,
    Save,
    SinkInUse,
    SinkUsedTwice,
    Standing,
    TooManyTasks,
    aborted_value,
    done_value,
    driver_timeout_ms,
    found_value,
    latest_of,
    leftovers,
    require_one_save,
    require_prepared,
    require_time,
    standing,
)
from fencepost.two_phase import InDoubt, Token
from fencepost.two_phase.coordinator import TWO_PHASE_TIMEOUT_MS
from tests.support.odd_json import odd_json, odd_part

QUERY = "8cd0ef86-096d-4b7d-8237-fcb86ebd341a"
TOKENS = (Token(7, 0, "orders-3f9a1c02-0-0"), Token(8, 0, "orders-3f9a1c02-1-1"))
DECISION = Decision("a1b2c3d4", Batch(QUERY, 3), TOKENS, rows=20, prepare_ms=12)
KEYS = ("orders", "orders/done", "orders/aborted", "orders/found", "orders/owner")


def in_doubt(token: Token, start_ms: int, timeout_ms: int = TWO_PHASE_TIMEOUT_MS) -> InDoubt:
    return InDoubt(token, ("out-0",), 5, timeout_ms == TWO_PHASE_TIMEOUT_MS, start_ms, timeout_ms)


def test_a_decision_is_read_as_it_was_written() -> None:
    assert Decision.parse(DECISION.value()) == DECISION
    assert json.loads(DECISION.value())["tokens"] == ["7:0:orders-3f9a1c02-0-0", "8:0:orders-3f9a1c02-1-1"]


def test_a_decision_of_an_earlier_version_is_read() -> None:
    stored = (
        b'{"batch": 3, "query": "8cd0ef86-096d-4b7d-8237-fcb86ebd341a", "tokens": ["7:0:orders-3f9a1c02-0-0", '
        b'"8:0:orders-3f9a1c02-1-1"], "rows": 20, "prepare_ms": 12, "id": "a1b2c3d4"}'
    )
    done = b'{"batch": 3, "done": true, "id": "a1b2c3d4", "complete_ms": 3, "swept": 0}'
    records = {"orders": stored, "orders/done": done, "orders/aborted": b'{"aborted_until_ms": 99}'}
    assert latest_of(records, KEYS) == Latest(DECISION, "a1b2c3d4", 99)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b'{"batch": 1}',
        b"[" * 100_000,
        DECISION.value().replace(b"7:0", b"7"),
        DECISION.value().replace(b'"batch": 3', b'"batch": "3"'),
        DECISION.value().replace(b'"rows": 20', b'"rows": Infinity'),
        DECISION.value().replace(b'"rows": 20', b'"rows": 20, "save": {"id": "b"}'),
        DECISION.value().replace(b'"rows": 20', b'"rows": 20, "save": []'),
    ],
)
def test_what_no_sink_has_written_is_not_a_decision(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a decision"):
        Decision.parse(value)


def test_a_topic_without_the_sinks_keys_says_nothing() -> None:
    assert latest_of({"other": DECISION.value()}, KEYS) == Latest(None, None, -1)


def test_a_decision_is_done_when_its_own_mark_is_there() -> None:
    mark = done_value(DECISION, complete_ms=3, swept=0)
    records = {"orders": DECISION.value(), "orders/done": mark, "orders/aborted": aborted_value(99)}
    assert latest_of(records, KEYS) == Latest(DECISION, "a1b2c3d4", 99)
    assert latest_of(records, KEYS).is_done
    assert not latest_of({**records, "orders": DECISION._replace(id="later").value()}, KEYS).is_done


@pytest.mark.parametrize(("number", "expected"), [(3, Standing.DECIDED), (4, Standing.OPEN), (9, Standing.OPEN)])
def test_a_batch_is_decided_if_the_decision_names_it(number: int, expected: Standing) -> None:
    assert standing(Latest(DECISION), "orders", Batch(QUERY, number)) is expected


def test_the_first_batch_of_a_sink_is_open() -> None:
    assert standing(Latest(), "orders", Batch(QUERY, 0)) is Standing.OPEN


@pytest.mark.parametrize(
    "batch", [Batch(QUERY, 2), Batch("another", 3), Batch("another", 0), Batch("another", 9), Batch(None, "a-job")]
)
def test_a_deleted_checkpoint_and_another_query_are_refused_by_name(batch: Batch) -> None:
    with pytest.raises(SinkInUse) as refused:
        standing(Latest(DECISION), "orders", batch)
    assert str(batch) in str(refused.value)
    assert str(DECISION.batch) in str(refused.value)
    assert "a1b2c3d4" in str(refused.value)


def test_a_reset_puts_one_decision_aside_and_no_other() -> None:
    batch = Batch("another", 0)
    assert standing(Latest(DECISION), "orders", batch, reset="a1b2c3d4") is Standing.OPEN
    own = Decision("ffffffff", batch, (), 0)
    assert standing(Latest(own), "orders", batch, reset="a1b2c3d4") is Standing.DECIDED


def test_each_batch_job_is_open_and_no_streaming_query_may_share_its_sink() -> None:
    latest = Latest(DECISION._replace(batch=Batch(None, "job-1")))
    assert standing(latest, "orders", Batch(None, "job-2")) is Standing.OPEN
    assert standing(latest, "orders", Batch(None, "job-1")) is Standing.DECIDED
    with pytest.raises(SinkInUse):
        standing(latest, "orders", Batch(QUERY, 0))


def test_all_tokens_have_to_be_open_under_their_pairs() -> None:
    open_ = [in_doubt(TOKENS[0], 10), in_doubt(TOKENS[1], 11)]
    require_prepared(TOKENS, open_, -1)
    with pytest.raises(NotPreparedAnyMore, match="8:0:orders-3f9a1c02-1-1"):
        require_prepared(TOKENS, open_[:1], -1)
    with pytest.raises(NotPreparedAnyMore, match="8:0:orders-3f9a1c02-1-1"):
        require_prepared(TOKENS, [open_[0], in_doubt(TOKENS[1]._replace(producer_epoch=1), 11)], -1)


def test_of_many_transactions_an_error_names_the_first_ones() -> None:
    many = [Token(number, 0, f"orders-3f9a1c02-{number}-{number}") for number in range(1000)]
    with pytest.raises(NotPreparedAnyMore, match="4:0:orders-3f9a1c02-4-4 and 995 more ended") as failed:
        require_prepared(many, [], -1)
    assert "5:0:orders-3f9a1c02-5-5" not in str(failed.value)


@pytest.mark.parametrize("name_length", [1, 36, 200])
def test_a_batch_of_more_transactions_than_a_decision_can_name_is_refused_in_words(name_length: int) -> None:
    sink = "x" * name_length
    many = tuple(Token(10**9 + number, 0, f"{sink}-3f9a1c02-{number}-{10**6 + number}") for number in range(30_000))
    fits = DECISION._replace(tokens=many[:4_000])
    assert Decision.parse(fits.value()) == fits
    with pytest.raises(TooManyTasks, match=r"has 30,000 transactions.*at most 1,048,576 are allowed.*fewer tasks"):
        DECISION._replace(tokens=many).value()


def test_what_another_driver_aborts_is_not_decided() -> None:
    open_ = [in_doubt(TOKENS[0], 10), in_doubt(TOKENS[1], 11)]
    require_prepared(TOKENS, open_, 9)
    with pytest.raises(NotPreparedAnyMore, match="another driver"):
        require_prepared(TOKENS, open_, 10)


@pytest.mark.parametrize("timeout_ms", [3_000, 30_000, 900_000, 86_400_000])
def test_a_driver_decides_only_while_the_oldest_transaction_lives_longer_than_its_own(timeout_ms: int) -> None:
    driver_ms = driver_timeout_ms(timeout_ms)
    open_ = [in_doubt(TOKENS[0], 5_000, timeout_ms), in_doubt(TOKENS[1], 1_000, timeout_ms)]
    latest_ms = 1_000 + timeout_ms - driver_ms - min(15_000, timeout_ms // 6)
    assert latest_ms - 1_000 >= timeout_ms // 2
    require_time(TOKENS, open_, latest_ms, driver_ms)
    with pytest.raises(NotPreparedAnyMore, match=r"8:0:orders-3f9a1c02-1-1 would soon"):
        require_time(TOKENS, open_, latest_ms + 1, driver_ms)
    require_time(TOKENS[:1], open_, latest_ms + 1, driver_ms)


def test_what_time_never_ends_is_never_too_old_to_be_decided() -> None:
    open_ = [in_doubt(TOKENS[0], 0)]
    require_time(TOKENS[:1], open_, 10**12, 60_000)
    require_time(TOKENS[:1], open_, 10**12, TWO_PHASE_TIMEOUT_MS)
    young = [in_doubt(TOKENS[0], 10**12, 900_000)]
    require_time(TOKENS[:1], young, 10**12 + 1_000, TWO_PHASE_TIMEOUT_MS)  # of a driver that is two-phase by its name


def test_leftovers_are_older_than_the_youngest_token_of_the_batch() -> None:
    lost, dead, later = (Token(number, 0, f"orders-0000000{number}-0-0") for number in (1, 2, 3))
    found = [
        in_doubt(dead, 1),
        in_doubt(TOKENS[0], 10),
        in_doubt(lost, 11),
        in_doubt(TOKENS[1], 11),
        in_doubt(later, 12),
    ]
    assert leftovers(TOKENS, found) == [dead, lost]


def test_without_a_token_of_its_own_a_batch_sweeps_nothing() -> None:
    assert leftovers((), [in_doubt(TOKENS[0], 10)]) == []


def save_of(id_: str, *, topic: str | None = "out", query: str | None = "q", run: str | None = "r1") -> Save:
    return Save(id_, topic, query, run)


FIRST = save_of("first")
SAVED = DECISION._replace(batch=Batch("orders", 3), save=FIRST)


def test_a_decision_knows_its_save() -> None:
    found = save_of("again", run=None)
    assert Decision.parse(SAVED.value()) == SAVED
    records = {"orders": SAVED.value(), "orders/found": found_value(SAVED, found)}
    assert latest_of(records, KEYS) == Latest(SAVED, found=found)
    assert latest_of({**records, "orders": DECISION._replace(id="later").value()}, KEYS).found is None


@pytest.mark.parametrize("mark", [b"[]", b"{}", b"1", b"[" * 100_000, b"\xff"])
@pytest.mark.parametrize("key", ["orders/done", "orders/aborted", "orders/found", "orders/owner"])
def test_a_mark_that_no_sink_has_written_is_refused_in_words(key: str, mark: bytes) -> None:
    with pytest.raises(ValueError, match="not a mark"):
        latest_of({"orders": DECISION.value(), key: mark}, KEYS)


@pytest.mark.parametrize(
    ("earlier", "found", "second"),
    [
        (FIRST, None, save_of("second")),
        (FIRST, None, save_of("second", topic="other")),
        (FIRST, None, save_of("second", topic="other", run="r2")),
        (FIRST, None, save_of("second", topic="other", run=None)),
        (FIRST, None, save_of("second", topic=None, run="r2")),
        (FIRST, save_of("again", run="r2"), save_of("second", run="r2")),
        (None, save_of("again", run="r2"), save_of("second", run="r2")),  # decided by an earlier version
        (None, save_of("again", run="r2"), save_of("second", topic="other", run="r3")),
    ],
)
def test_a_second_save_of_a_batch_is_refused(earlier: Save | None, found: Save | None, second: Save) -> None:
    latest = Latest(SAVED._replace(save=earlier), found=found)
    with pytest.raises(SinkUsedTwice, match="a sink of its own") as refused:
        require_one_save(latest, "orders", second)
    assert "a1b2c3d4" in str(refused.value)
    require_one_save(latest, "orders", second, accept="a1b2c3d4")


@pytest.mark.parametrize(
    ("earlier", "found", "again"),
    [
        (FIRST, None, FIRST),  # the same call, tried twice
        (FIRST, None, save_of("again", run="r2")),
        (FIRST, save_of("again", run="r2"), save_of("again", run="r2")),
        (FIRST, save_of("again", run="r2"), save_of("once more", run="r3")),
        (FIRST, None, save_of("again", run=None)),
        (None, None, save_of("again", run="r2")),
    ],
)
def test_a_save_that_a_later_run_repeats_is_not_refused(earlier: Save | None, found: Save | None, again: Save) -> None:
    require_one_save(Latest(SAVED._replace(save=earlier), found=found), "orders", again)


def test_saves_of_another_query_are_refused_by_the_sinks_decision() -> None:
    for number in (0, 3, 9):
        with pytest.raises(SinkInUse, match="another query uses this sink"):
            standing(Latest(SAVED), "orders", Batch("orders", number), save=save_of("x", query="another"))
    assert standing(Latest(SAVED), "orders", Batch("orders", 3), save=save_of("x", query=None)) is Standing.DECIDED
    assert standing(Latest(SAVED), "orders", Batch("orders", 3), save=save_of("x")) is Standing.DECIDED
    earlier = Latest(SAVED._replace(save=None))
    assert standing(earlier, "orders", Batch("orders", 3), save=save_of("x")) is Standing.DECIDED


@given(odd_json() | odd_part(json.loads(DECISION.value())))
def test_a_record_of_any_json_is_a_decision_or_refused_in_a_short_line(value: bytes) -> None:
    for records in ({KEYS[0]: value}, *({KEYS[0]: DECISION.value(), key: value} for key in KEYS[1:])):
        try:
            latest = latest_of(records, KEYS)
        except ValueError as error:
            assert len(str(error)) < 1_500  # noqa: PT017  # most are refused, some are not
        else:
            decision = latest.decision
            assert decision is not None
            assert decision.rows >= 0
            assert all(isinstance(token.transactional_id, str) for token in decision.tokens)
            assert type(latest.aborted_until_ms) is int
