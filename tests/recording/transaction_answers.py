"""Asks a broker what it answers in some seventy situations of transactions, in words that do not depend on ids or time.

    .venv/bin/python -m tests.recording.transaction_answers    # asks Apache Kafka, rewrites tests/frames/

tests/integration/test_transaction_answers.py compares a broker process of ours with what was written then.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from kafka.protocol import admin, metadata, producer

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ROOT, ApacheKafka
from tests.recording.raw_session import RETRYABLE, Session, record_batch

ANSWERS = ROOT / "tests" / "frames" / "transaction_answers.json"
TOPIC = "answers"
GROUP, TRANSACTION = 0, 1
COORDINATOR_AWAY = RETRYABLE - {51}
PRODUCE_WITH_ABORTABLE, PRODUCE_OF_VERSION_2 = 11, 12
FAR = 90_000  # so far from any producer id that it is nobody's


class Requester:
    """One transactional producer that sends exactly the given requests."""

    def __init__(self, session: Session, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.session = session
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = 0
        self.producer_id = self._initialize(5).producer_id

    def _initialize(self, version: int, **fields: Any) -> Any:
        values = {"transaction_timeout_ms": self.timeout_ms, "producer_id": -1, "producer_epoch": -1} | fields
        return self.session.send_until_settled(
            producer.InitProducerIdRequest, version, transactional_id=self.transactional_id, **values
        )

    def _identity(self, reply: Any) -> list[int | None]:
        """Error, producer id as a distance from ours, epoch."""
        shift = reply.producer_id - self.producer_id if reply.producer_id >= 0 else None
        return [reply.error_code, shift, reply.producer_epoch]

    def initialize(self, version: int = 5, *, shift: int = 0, epoch: int) -> list[int | None]:
        reply = self._initialize(version, producer_id=self.producer_id + shift, producer_epoch=epoch)
        return self._identity(reply)

    def begin_again_at_once(self) -> int:
        fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        reply = self.session.send(producer.InitProducerIdRequest, 5, transactional_id=self.transactional_id, **fields)
        return int(reply.error_code)

    def add(self, epoch: int) -> int:
        reply = self.session.send(
            producer.AddPartitionsToTxnRequest,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
        )
        return int(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(
        self, version: int, epoch: int, sequence: int, *, shift: int = 0, is_transactional: bool = True, **fields: Any
    ) -> int:
        records = record_batch(
            producer_id=self.producer_id + shift,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        reply = self.session.send(
            producer.ProduceRequest,
            version,
            **{"transactional_id": self.transactional_id} | fields,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}],
        )
        return int(reply.responses[0].partition_responses[0].error_code)

    def end(self, version: int, epoch: int, *, committed: bool, shift: int = 0) -> list[int | None]:
        reply = self.session.send(
            producer.EndTxnRequest,
            version,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id + shift,
            producer_epoch=epoch,
            committed=committed,
        )
        time.sleep(0.3)  # Kafka's markers take their time
        return self._identity(reply)

    def wait_for_the_coordinators_abort(self) -> None:
        """Kafka looks for transactions that have timed out every ten seconds."""
        for _ in range(600):
            reply = self.session.send(admin.DescribeTransactionsRequest, 0, transactional_ids=[self.transactional_id])
            if reply.transaction_states[0].transaction_state == "CompleteAbort":
                return
            time.sleep(0.1)
        raise AssertionError("the coordinator did not abort the transaction")

    def mark(self, version: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0, **where: Any) -> int:
        reply = self.session.send(
            producer.WriteTxnMarkersRequest,
            version,
            markers=[
                {
                    "producer_id": self.producer_id,
                    "producer_epoch": epoch,
                    "transaction_result": False,
                    "topics": [{"name": where.get("topic", TOPIC), "partition_indexes": [where.get("partition", 0)]}],
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": transaction_version,
                }
            ],
        )
        return int(reply.markers[0].topics[0].partitions[0].error_code)

    def described(self) -> list[Any]:
        """Epoch, last sequence, coordinator epoch, whether a transaction is open: as the partition knows it."""
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        reply = self.session.send(admin.DescribeProducersRequest, 0, topics=topics)
        return [
            [found.producer_epoch, found.last_sequence, found.coordinator_epoch, found.current_txn_start_offset >= 0]
            for found in reply.topics[0].partitions[0].active_producers
            if found.producer_id == self.producer_id
        ]

    def commit_offset(self, version: int, epoch: int, *, group: str, shift: int = 0, **fields: Any) -> int:
        partition = {"partition_index": fields.pop("partition", 0), "committed_offset": 5}
        partition["committed_metadata"] = fields.pop("metadata", "m")
        values = {"transactional_id": self.transactional_id, "generation_id": -1, "member_id": ""} | fields
        for _ in range(50):
            reply = self.session.send(
                producer.TxnOffsetCommitRequest,
                version,
                group_id=group,
                producer_id=self.producer_id + shift,
                producer_epoch=epoch,
                topics=[{"name": TOPIC, "partitions": [partition]}],
                **values,
            )
            error = int(reply.topics[0].partitions[0].error_code)
            if error not in COORDINATOR_AWAY:
                break
            time.sleep(0.1)
        return error


def ask(port: int) -> dict[str, Any]:
    """Every situation with its answer, in order."""
    session = Session(port, topic=TOPIC)
    run = uuid.uuid4().hex
    _prepare(session, f"group-{run}")
    answers: dict[str, Any] = {}
    answers |= _version_2_without_data(Requester(session, f"a-{run}"))
    answers |= _listed(session, Requester(session, f"b-{run}"))
    answers |= _version_1(Requester(session, f"c-{run}"))
    answers |= _recovery(Requester(session, f"d-{run}"))
    answers |= _markers(Requester(session, f"e-{run}"))
    answers |= _offsets(Requester(session, f"f-{run}"), f"group-{run}")
    answers |= _timed_out(
        Requester(session, f"g-{run}", timeout_ms=200), Requester(session, f"h-{run}", timeout_ms=200)
    )
    session.close()
    return answers


def _prepare(session: Session, group: str) -> None:
    topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    session.send(admin.CreateTopicsRequest, 5, topics=[topic], timeout_ms=10_000, validate_only=False)
    for key_type in (TRANSACTION, GROUP):
        session.send_until_settled(metadata.FindCoordinatorRequest, 3, key=group, key_type=key_type)
    time.sleep(3)  # until Kafka has loaded both


def _version_2_without_data(requester: Requester) -> dict[str, Any]:
    return {
        "Produce 11, empty transactional id": requester.produce(11, 0, 0, transactional_id=""),
        "Produce 12, empty transactional id": requester.produce(12, 0, 0, transactional_id=""),
        "Produce 11, no transactional id": requester.produce(11, 0, 0, transactional_id=None),
        "Produce 11, not added": requester.produce(11, 0, 0),
        "Produce 10, not added": requester.produce(10, 0, 0),
        "EndTxn 5, commit in Empty": requester.end(5, 0, committed=True),
        "EndTxn 5, abort in Empty": requester.end(5, 0, committed=False),
        "EndTxn 5, the abort again": requester.end(5, 0, committed=False),
        "EndTxn 5, then a commit under the earlier epoch": requester.end(5, 0, committed=True),
        "EndTxn 5, commit in CompleteAbort": requester.end(5, 1, committed=True),
        "EndTxn 5, an epoch never given": requester.end(5, 2, committed=True),
        "EndTxn 5, a producer id never given": requester.end(5, 1, committed=True, shift=FAR),
        "EndTxn 4, abort in CompleteAbort": requester.end(4, 1, committed=False),
        "EndTxn 4, commit in CompleteAbort": requester.end(4, 1, committed=True),
    }


def _listed(session: Session, requester: Requester) -> dict[str, Any]:
    def listed(**filters: Any) -> Any:
        values = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
        return session.send(admin.ListTransactionsRequest, 2, **values)

    states = listed(state_filters=["Dead", "PrepareEpochFence", "x"])
    described = session.send(
        admin.DescribeTransactionsRequest, 0, transactional_ids=[requester.transactional_id, "", "nobody"]
    )
    return {
        "ListTransactions 2, unknown states": list(states.unknown_state_filters),
        "ListTransactions 2, no pattern": listed(transactional_id_pattern="(").error_code,
        "ListTransactions 2, empty pattern finds": bool(listed(transactional_id_pattern="").transaction_states),
        "DescribeTransactions 0": [
            [found.error_code, found.transaction_state] for found in described.transaction_states
        ],
    }


def _version_1(requester: Requester) -> dict[str, Any]:
    return {
        "AddPartitionsToTxn 3": requester.add(0),
        "Produce 10": requester.produce(10, 0, 0),
        "Produce 10 again": requester.produce(10, 0, 0),
        "Produce 10, a gap": requester.produce(10, 0, 9),
        "Produce 10, outside its open transaction": requester.produce(
            10, 0, 2, is_transactional=False, transactional_id=None
        ),
        "Produce 10, an epoch never given": requester.produce(10, 1, 0),
        "InitProducerId 5, its own identity in Ongoing": requester.initialize(epoch=0),
        "AddPartitionsToTxn 3, fenced": requester.add(0),
        "Produce 10, fenced": requester.produce(10, 0, 2),
        "EndTxn 4, fenced": requester.end(4, 0, committed=True),
        "InitProducerId 5, an epoch never given": requester.initialize(epoch=7),
        "InitProducerId 5, a producer id never given": requester.initialize(shift=FAR, epoch=0),
        "InitProducerId 3, a producer id never given": requester.initialize(3, shift=FAR, epoch=0),
    }


def _recovery(requester: Requester) -> dict[str, Any]:
    return {
        "InitProducerId 5, its own identity": requester.initialize(epoch=0),
        "InitProducerId 5, again": requester.initialize(epoch=0),
        "InitProducerId 5, the next": requester.initialize(epoch=1),
        "InitProducerId 5, the one before the last": requester.initialize(epoch=0),
    }


def _markers(requester: Requester) -> dict[str, Any]:
    return {
        "Produce 12 opens": requester.produce(12, 0, 0),
        "DescribeProducers 0, open": requester.described(),
        "WriteTxnMarkers 2, the data's epoch": requester.mark(2, 0, 0, 2),
        "WriteTxnMarkers 1, the data's epoch": requester.mark(1, 0, 0),
        "DescribeProducers 0, aborted by hand": requester.described(),
        "WriteTxnMarkers 1, again": requester.mark(1, 0, 0),
        "WriteTxnMarkers 2, nothing open": requester.mark(2, 0, 0, 2),
        "WriteTxnMarkers 1, an old coordinator": requester.mark(1, 0, -1),
        "WriteTxnMarkers 1, no such topic": requester.mark(1, 0, 0, topic="nothing"),
        "WriteTxnMarkers 1, no such partition": requester.mark(1, 0, 0, partition=9),
        "Produce 12, on after that abort": requester.produce(12, 0, 2),
        "EndTxn 5, commit": requester.end(5, 0, committed=True),
        "Produce 12, the next transaction": requester.produce(12, 1, 0),
        "Produce 12, a gap": requester.produce(12, 1, 5),
        "EndTxn 5, abort": requester.end(5, 1, committed=False),
        "Produce 12, does not begin at 0": requester.produce(12, 2, 3),
        "Produce 12, begins at 0": requester.produce(12, 2, 0),
        "Produce 12, an old epoch": requester.produce(12, 1, 0),
        "Produce 12, an epoch never given": requester.produce(12, 3, 0),
        "Produce 12, a producer id never given": requester.produce(12, 0, 0, shift=FAR),
        "WriteTxnMarkers 1, a coordinator of the future": requester.mark(1, 2, 9),
        "DescribeProducers 0, a coordinator of the future": requester.described(),
        "EndTxn 5, the coordinator is deposed": requester.end(5, 2, committed=True),
        "InitProducerId 5, the coordinator is deposed": requester.begin_again_at_once(),
    }


def _offsets(requester: Requester, group: str) -> dict[str, Any]:
    other = f"{group}-other"
    return {
        "TxnOffsetCommit 3, not added": requester.commit_offset(3, 0, group=group),
        "TxnOffsetCommit 4, not added": requester.commit_offset(4, 0, group=group),
        "TxnOffsetCommit 5, a generation of no group": requester.commit_offset(5, 0, group=group, generation_id=3),
        "TxnOffsetCommit 5": requester.commit_offset(5, 0, group=group),
        "TxnOffsetCommit 5, long metadata": requester.commit_offset(5, 0, group=group, metadata="m" * 5000),
        "TxnOffsetCommit 5, no such partition": requester.commit_offset(5, 0, group=group, partition=9),
        "TxnOffsetCommit 5, no group": requester.commit_offset(5, 0, group=""),
        "TxnOffsetCommit 5, a member of an empty group": requester.commit_offset(5, 0, group=group, member_id="who"),
        "TxnOffsetCommit 5, an epoch never given": requester.commit_offset(5, 4, group=group),
        "TxnOffsetCommit 5, a producer id never given": requester.commit_offset(5, 0, group=group, shift=FAR),
        "TxnOffsetCommit 5, empty transactional id": requester.commit_offset(5, 0, group=other, transactional_id=""),
        "TxnOffsetCommit 3, empty transactional id": requester.commit_offset(3, 0, group=other, transactional_id=""),
        "TxnOffsetCommit 5, unknown transactional id": requester.commit_offset(
            5, 0, group=other, transactional_id=other
        ),
    }


def _timed_out(newer: Requester, older: Requester) -> dict[str, Any]:
    """Producers whose transaction the coordinator has aborted, and that do not know it yet."""
    newer.produce(12, 0, 0)
    older.add(0)
    newer.wait_for_the_coordinators_abort()
    older.wait_for_the_coordinators_abort()
    return {
        "Produce 12, after the coordinator's abort": newer.produce(12, 0, 1),
        "EndTxn 5, abort after the coordinator's abort": newer.end(5, 0, committed=False),
        "EndTxn 5, commit after the coordinator's abort": newer.end(5, 0, committed=True),
        "AddPartitionsToTxn 3, after the coordinator's abort": older.add(0),
        "EndTxn 4, abort after the coordinator's abort": older.end(4, 0, committed=False),
        "EndTxn 4, commit after the coordinator's abort": older.end(4, 0, committed=True),
        "InitProducerId 5, its identity after the coordinator's abort": older.initialize(epoch=0),
    }


def main() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, ApacheKafka(Path(folder), port):
        answers = ask(port)
    lines = ",\n".join(f"  {json.dumps(situation)}: {json.dumps(answer)}" for situation, answer in answers.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n")
    print(f"wrote {len(answers)} answers to {ANSWERS}")


if __name__ == "__main__":
    main()
