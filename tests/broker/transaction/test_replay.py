"""Whatever happens to a transaction, its log replays to the same state, and each prefix of it is a legal state."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.metadata import EXHAUSTED_EPOCH, LAST_EPOCH, Producer, TransactionMetadata
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import ALLOWED_PREVIOUS, EMPTY, TransactionState, TransactionVersion
from fencepost.protocol.errors import ErrorCode
from tests.support.transaction_shard import NOTHING_OPEN, NOW_MS, TRANSACTIONAL_ID, ShardDriver, transaction_in

ALLOWED_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
}

versions = st.sampled_from(TransactionVersion)
partition_sets = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=3)
# Which of the identities given out so far a request comes from, counted from the newest; None is a producer that has
# none.
sessions = st.none() | st.integers(0, 3)
operations = st.one_of(
    st.tuples(st.just("init"), sessions, st.booleans()),
    st.tuples(st.just("add"), sessions, partition_sets, versions),
    st.tuples(st.just("end"), sessions, st.booleans(), versions),
    st.tuples(st.just("markers written")),
    st.tuples(st.just("time passes"), st.integers(0, 200_000)),
    st.tuples(st.just("expiry")),
    st.tuples(st.just("crash")),
)


class History:
    """One transactional id through a sequence of operations, with what must hold after each of them."""

    def __init__(self, *, version: TransactionVersion, first_epoch: int, producer_ids: int) -> None:
        self.driver = ShardDriver(version=version, producer_ids=range(100, 100 + producer_ids))
        self.now_ms = NOW_MS
        self.given_out: list[Producer] = []
        if first_epoch:
            self.driver.put(transaction_in(EMPTY, producer=Producer(7, first_epoch), previous_producer_id=-1))
            self.given_out.append(Producer(7, first_epoch))

    def run(self, operation: tuple[object, ...]) -> None:
        before = self.driver.shard.transactions.get(TRANSACTIONAL_ID)
        steps: dict[str, Callable[..., None]] = {
            "init": self.init,
            "add": self.add,
            "end": self.end,
            "markers written": self.markers_written,
            "time passes": self.time_passes,
            "expiry": self.expiry,
            "crash": self.crash,
        }
        name, *arguments = operation
        steps[str(name)](*arguments)
        self.check_epochs(before)

    def session(self, age: int | None) -> Producer | None:
        return None if age is None or age >= len(self.given_out) else self.given_out[-1 - age]

    def note(self, reply: ProducerReply) -> None:
        assert reply.error in ALLOWED_ERRORS
        if reply.error is ErrorCode.NONE:
            producer = Producer(reply.producer_id, reply.producer_epoch)
            assert producer.producer_epoch <= EXHAUSTED_EPOCH
            if producer not in self.given_out:
                self.given_out.append(producer)

    def init(self, age: int | None, keep_prepared: bool) -> None:
        expected = self.session(age)
        before = self.driver.shard.transactions.get(TRANSACTIONAL_ID)
        reply = self.driver.do(
            self.driver.shard.decide_init_producer_id(
                TRANSACTIONAL_ID,
                timeout_ms=60_000,
                expected=expected,
                now_ms=self.now_ms,
                keep_prepared=keep_prepared,
            )
        )
        if reply.error is ErrorCode.NONE and (expected is None or reply.ongoing is not None):
            # A new session: nobody has held this identity before.
            assert reply.producer not in self.given_out
        was_open = before is not None and before.state.is_open
        assert (reply.ongoing is not None) is (keep_prepared and was_open and reply.error is ErrorCode.NONE)
        self.note(reply)

    def add(self, age: int | None, partitions: frozenset[TopicPartition], version: TransactionVersion) -> None:
        producer = self.session(age) or Producer(1, 0)
        decision = self.driver.shard.decide_add_partitions(
            TRANSACTIONAL_ID, producer, partitions, version=version, now_ms=self.now_ms
        )
        assert self.driver.do(decision) in ALLOWED_ERRORS

    def end(self, age: int | None, committed: bool, version: TransactionVersion) -> None:
        producer = self.session(age) or Producer(1, 0)
        reply = self.driver.do(
            self.driver.shard.decide_end_transaction(
                TRANSACTIONAL_ID, producer, committed=committed, version=version, now_ms=self.now_ms
            )
        )
        self.note(reply)

    def markers_written(self) -> None:
        self.driver.do(self.driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=self.now_ms))

    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.driver.do(self.driver.shard.decide_deadline(self.now_ms))

    def expiry(self) -> None:
        self.time_passes(self.driver.limits.transactional_id_expiration_ms + self.driver.limits.expiry_interval_ms)

    def crash(self) -> None:
        self.driver.shard = self.driver.replayed()

    def check_epochs(self, before: TransactionMetadata | None) -> None:
        after = self.driver.shard.transactions.get(TRANSACTIONAL_ID)
        if before is None or after is None:
            return
        if after.producer_id == before.producer_id:
            assert before.producer_epoch <= after.producer_epoch <= LAST_EPOCH
        else:
            assert after.producer_epoch == max(before.next_producer_epoch, 0)
            assert after.producer_id > before.producer_id


@settings(max_examples=150, deadline=None)
@given(
    version=versions,
    first_epoch=st.sampled_from([0, EXHAUSTED_EPOCH - 2, EXHAUSTED_EPOCH]),
    producer_ids=st.integers(1, 5),
    sequence=st.lists(operations, max_size=25),
)
def test_replay_of_any_prefix_is_legal_and_the_whole_log_equals_the_live_state(
    version: TransactionVersion, first_epoch: int, producer_ids: int, sequence: list[tuple[object, ...]]
) -> None:
    history = History(version=version, first_epoch=first_epoch, producer_ids=producer_ids)
    for operation in sequence:
        history.run(operation)
    driver = history.driver
    replayed = driver.replayed()
    assert replayed.transactions == driver.shard.transactions
    assert set(replayed.prepared_without_completion) == set(driver.shard.prepared_without_completion)

    state: TransactionState | None = None
    for length in range(1, len(driver.records) + 1):
        transaction = driver.replayed(driver.records[:length]).transactions.get(TRANSACTIONAL_ID)
        if transaction is None:
            assert state is None or state in NOTHING_OPEN
            state = None
            continue
        assert state is None or state in ALLOWED_PREVIOUS[transaction.state]
        assert bool(transaction.partitions) <= (transaction.state.is_prepared or transaction.state.is_open)
        state = transaction.state
