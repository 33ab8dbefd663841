"""A resolver that reads the latest decision of a sink: it lists what is committed, and nothing older can follow."""

from __future__ import annotations

import json

import pytest

from fencepost.check_back.question import Answer, LatestRecord, Question, ResolverUnreachable
from fencepost.check_back.resolvers.record import CLOCK_SKEW_MS, RecordResolver
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase.tokens import Token

STARTED_MS = 1_764_000_000_000
TOKEN = Token(7, 0, "orders-3f9a1c02-0-0")
QUESTION = Question(TOKEN, STARTED_MS, (("out", 0),))


class Records:
    """A topic with at most one record. asked: the topics and keys that were read."""

    def __init__(self, latest: LatestRecord | None = None) -> None:
        self.latest_record = latest
        self.asked: list[tuple[str, bytes]] = []

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        self.asked.append((topic, key))
        return self.latest_record


def resolver(records: Records, **options: str) -> RecordResolver:
    return RecordResolver(
        ResolverSettings("spark", ("orders-*",), "record", {"topic": "fencepost-sink-orders", **options}), records
    )


def decision(*tokens: Token, at_ms: int = STARTED_MS + 60_000, is_append_time: bool = True) -> Records:
    value = json.dumps({"batch": 4, "query": "q", "tokens": [str(token) for token in tokens], "rows": 10})
    return Records(LatestRecord(value.encode(), at_ms, is_append_time))


@pytest.mark.parametrize("is_append_time", [True, False])
@pytest.mark.parametrize("at_ms", [STARTED_MS - 60_000, STARTED_MS, STARTED_MS + 60_000])
async def test_a_decision_that_lists_the_transaction_says_commit(at_ms: int, is_append_time: bool) -> None:
    records = decision(Token(6, 0, "other"), TOKEN, at_ms=at_ms, is_append_time=is_append_time)
    assert await resolver(records).ask(QUESTION) is Answer.COMMIT
    assert records.asked == [("fencepost-sink-orders", b"orders")]


async def test_a_later_decision_that_does_not_list_it_says_abort() -> None:
    assert await resolver(decision(Token(7, 1, TOKEN.transactional_id))).ask(QUESTION) is Answer.ABORT
    assert await resolver(decision()).ask(QUESTION) is Answer.ABORT


@pytest.mark.parametrize("after_ms", [-60_000, 0, CLOCK_SKEW_MS])
async def test_a_decision_that_may_be_older_than_the_transaction_says_nothing_of_it(after_ms: int) -> None:
    records = decision(at_ms=STARTED_MS + after_ms)
    assert await resolver(records).ask(QUESTION) is Answer.UNKNOWN
    assert await resolver(decision(at_ms=STARTED_MS + CLOCK_SKEW_MS + 1)).ask(QUESTION) is Answer.ABORT


async def test_a_time_of_the_writers_own_clock_proves_nothing() -> None:
    assert await resolver(decision(is_append_time=False)).ask(QUESTION) is Answer.UNKNOWN


async def test_no_decision_and_a_deleted_one_are_unknown() -> None:
    assert await resolver(Records()).ask(QUESTION) is Answer.UNKNOWN
    assert await resolver(Records(LatestRecord(None, STARTED_MS + 60_000, True))).ask(QUESTION) is Answer.UNKNOWN


async def test_each_sink_of_a_shared_topic_has_a_key_of_its_own() -> None:
    records = decision(TOKEN)
    for name in ("batch-4f1e-3f9a1c02-0-0", "batch-4f1e-driver", "batch-4f1e-3f9a1c02-0-x", "a-0-1-3f9a1c02-12-345"):
        await resolver(records, topic="fencepost-sink-batch").ask(Question(Token(7, 0, name), STARTED_MS, ()))
    assert [key for _, key in records.asked] == [b"batch-4f1e", b"batch", b"batch", b"a-0-1"]


async def test_the_key_can_be_another_than_that_of_the_topics_name() -> None:
    records = decision(TOKEN)
    assert await resolver(records, topic="decisions", key="shop/orders").ask(QUESTION) is Answer.COMMIT
    other = Question(Token(7, 0, "order-1"), STARTED_MS, ())
    assert await resolver(records, topic="decisions").ask(other) is Answer.ABORT
    assert records.asked == [("decisions", b"shop/orders"), ("decisions", b"decisions")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "it is not JSON: Expecting value at character 0"),
        (b"\xff", "it is not UTF-8"),
        (b"[]", "it is not a JSON object"),
        (b'{"batch": 4}', "'tokens' is missing"),
        (b'{"tokens": "7:0:orders-3f9a1c02-0-0"}', "'tokens' must be an array; it is '7:0:orders-3f9a1c02-0-0'"),
        (b'{"tokens": ["7:0:orders-3f9a1c02-0-0", 4]}', "'tokens'[1] must be text; it is 4"),
        (b'{"tokens": ["7:0:orders-3f9a1c02-0-0"], "tokens": []}', "it has a key twice"),
        (b'{"tokens": [], "rows": NaN}', "NaN is not JSON"),
        (b'{"tokens": [], "rows": 1' + b"0" * 5000 + b"}", "it has a whole number of more than 64 bits"),
        (b'{"tokens": ' + b"[" * 200_000, "it is nested more than 64 levels deep"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_record_that_is_no_decision_is_no_answer(value: bytes, said: str) -> None:
    with pytest.raises(ResolverUnreachable) as raised:
        await resolver(Records(LatestRecord(value, STARTED_MS + 60_000, True))).ask(QUESTION)
    assert raised.value.reason == (
        "resolver spark: the latest record of fencepost-sink-orders under the key orders is no decision: "
        f"{said}; look which program writes there, or correct topic and key"
    )
