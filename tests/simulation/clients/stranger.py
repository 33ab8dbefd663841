"""Strangers write whatever they like into the check-back's topics, beside an application that needs the check-back.

The application leaves its transactions open, and decides each by a record of the topic of decisions: what is listed
there is committed. A broker that checks back has to end them all, and may commit nothing that was not decided so.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final

from fencepost.check_back.case import Decider
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import Record, build_batch
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.applications import Play
from tests.simulation.clients.cluster import TRANSACTION, Cluster
from tests.simulation.clients.tenant import PRODUCE_VERSION
from tests.simulation.situations import AN_ODD_RECORD_IS_WRITTEN, THE_CHECK_BACK_ENDS_A_TRANSACTION
from tests.support.odd_json import ODD_TEXTS

DOUBTFUL: Final = "doubtful"
STRANGER: Final = "stranger"
DOUBTED: Final = "doubted"
DECISIONS: Final = "decisions"
CHECK_BACK_SETTINGS: Final = {
    "transaction.two.phase.commit.enable": "true",
    "fencepost.check.back.resolvers": DOUBTFUL,
    "fencepost.check.back.doubtful.ids": f"{DOUBTFUL}-*",
    "fencepost.check.back.doubtful.type": "record",
    "fencepost.check.back.doubtful.topic": DECISIONS,
    "fencepost.check.back.doubtful.first.ms": "100",
    "fencepost.check.back.doubtful.interval.ms": "300",
    "fencepost.check.back.doubtful.backoff": "1",
    # What no process has decided, as it was killed, is aborted in the end.
    "fencepost.check.back.doubtful.checks.max": "12",
    "fencepost.check.back.doubtful.exhausted": "abort",
}
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
TRANSACTION_TIMEOUT_MS: Final = 10_000
INIT_VERSION, ADD_VERSION = 3, 3
FIELDS: Final[dict[str, Any]] = {
    "token": "7:0:doubtful-x",
    "started_ms": 1,
    "partitions": ["t-0"],
    "resolver": DOUBTFUL,
    "checks": 1,
    "failures": 0,
    "next_ms": 5,
    "parked": False,
    "last_answer": "unknown",
    "last_asked_ms": 3,
    "decision": None,
    "decided_by": Decider.RESOLVER.value,
    "command": "ask-again",
    "time_ms": 5,
    "ids": ["*"],
    "up": True,
    "tokens": ["7:0:doubtful-x"],
}
KEYS: Final = (
    "transaction/7:0:doubtful-x@1",
    "transaction/",
    "command/doubtful-x",
    "command/",
    "resolver/doubtful",
    "resolver/\N{SNOWMAN}",
    DOUBTFUL,
    "",
)


def odd_value(chance: random.Random) -> bytes:
    """Bytes, an odd JSON value, or an object of ours with an odd field."""
    chosen = chance.random()
    if chosen < 0.2:
        return chance.randbytes(chance.randint(0, 40))
    odd = chance.choice(ODD_TEXTS)
    if chosen < 0.5:
        return odd
    name = chance.choice(list(FIELDS))
    text = json.dumps({**FIELDS, name: "odd value"}).encode()
    return text.replace(b'"odd value"', odd)


def stranger() -> Play:
    """Writes odd records into each topic that it may write to, and tries those that only coordinators may."""

    async def play(life: Life) -> None:
        cluster = life.cluster()
        while life.goes_on():
            await life.think(0.02, 0.4)
            topic = life.chance.choice((STATE_TOPIC, STATE_TOPIC, AUDIT_TOPIC, DECISIONS, *INTERNAL))
            try:
                error = await _write(life, cluster, topic, life.chance.choice(KEYS), odd_value(life.chance))
            except Disconnected:
                await cluster.back_off()
                continue
            assert topic not in INTERNAL or error is not ErrorCode.NONE, f"a client has written to {topic}"
            if error is ErrorCode.NONE:
                life.reached(AN_ODD_RECORD_IS_WRITTEN)
        cluster.close()

    return play


def doubtful() -> Play:
    """Opens transactions, decides them and leaves their end to the check-back; the next one follows that end."""

    async def play(life: Life) -> None:
        cluster = life.cluster()
        sink, number = f"{DOUBTFUL}-{life.name}", 0
        while life.goes_on():
            await life.think(0.0, 0.5)
            number += 1
            transactional_id = f"{sink}-{number:08x}-0-0"
            try:
                token = await _open(life, cluster, transactional_id)
            except Disconnected:
                await cluster.back_off()
                continue
            if token is not None:
                is_decided = life.chance.random() < 0.6
                await _until_ended(life, cluster, sink, transactional_id, token, commit=is_decided)
        cluster.close()

    return play


async def _open(life: Life, cluster: Cluster, transactional_id: str) -> str | None:
    """The token of a transaction with a record in it; None if a request was refused. Raises Disconnected."""
    init = InitProducerIdRequest(transactional_id, TRANSACTION_TIMEOUT_MS)
    pair = await cluster.ask_coordinator(TRANSACTION, transactional_id, init, INIT_VERSION)
    if pair.error_code:
        return None
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=pair.producer_id,
        v3_and_below_producer_epoch=pair.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=DOUBTED, partitions=[0])],
    )
    added = await cluster.ask_coordinator(TRANSACTION, transactional_id, add, ADD_VERSION)
    if added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code:
        return None
    batch = build_batch(
        [Record(0, life.now_ms(), None, life.new_value().encode())],
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=DOUBTED, partition_data=[PartitionProduceData(0, bytes(batch))])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=[data])
    await cluster.send(cluster.any_node(), request, PRODUCE_VERSION)
    return f"{pair.producer_id}:{pair.producer_epoch}:{transactional_id}"


async def _until_ended(
    life: Life, cluster: Cluster, sink: str, transactional_id: str, token: str, *, commit: bool
) -> None:
    """Write the decision again and again, as strangers write over it, until the transaction has ended."""
    decision = json.dumps({"tokens": [token] if commit else []}).encode()
    while True:
        await asyncio.sleep(life.chance.uniform(0.1, 0.4))
        try:
            await _write(life, cluster, DECISIONS, sink, decision)
            describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = (await cluster.ask_coordinator(TRANSACTION, transactional_id, describe, 0)).transaction_states
        except Disconnected:
            await cluster.back_off()
            continue
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND or found.transaction_state == "Empty":
            return
        if found.error_code == ErrorCode.NONE and found.transaction_state.startswith("Complete"):
            assert commit or found.transaction_state == "CompleteAbort", f"{token} was committed, and never decided"
            life.reached(THE_CHECK_BACK_ENDS_A_TRANSACTION)
            return


async def _write(life: Life, cluster: Cluster, topic: str, key: str, value: bytes) -> ErrorCode:
    """Raises Disconnected."""
    batch = bytes(build_batch([Record(0, life.now_ms(), key.encode(), value)]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
    response = await cluster.send(cluster.any_node(), request, PRODUCE_VERSION)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)
