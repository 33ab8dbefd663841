"""What applications do with the clients: write, read, and turn what they read into what they write, exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import IsolationLevel, ReadRecord
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.cluster import EARLIEST
from tests.simulation.clients.consumer import FETCH_VERSIONS, READ_COMMITTED, READ_UNCOMMITTED, Consumer, flattened
from tests.simulation.clients.group import GroupMember, NotMember
from tests.simulation.clients.libraries import Library
from tests.simulation.clients.producer import Abortable, Fatal, Producer, TransactionalProducer
from tests.simulation.situations import A_GROUP_MOVES_ON_IN_A_TRANSACTION

FETCH_SIZES_BYTES: Final = (250, 1_000, 65_536)

Play = Callable[[Life], Awaitable[None]]


@dataclass(frozen=True)
class Habits:
    """How an application writes.

    unrecorded: topics of which the history tells nothing, because they may be deleted.
    keys:       how many different keys records have; 0 for none.
    """

    topics: Sequence[TopicPartition]
    unrecorded: frozenset[str] = frozenset()
    keys: int = 0
    batches: int = 4
    records: int = 3
    abort_probability: float = 0.2
    idle_probability: float = 0.05
    pause_s: tuple[float, float] = (0.01, 0.4)


def send_some(life: Life, producer: Producer, habits: Habits) -> None:
    chance = life.chance
    for _ in range(chance.randint(1, habits.batches)):
        topic_partition = chance.choice(habits.topics)
        values = [life.new_value() for _ in range(chance.randint(1, habits.records))]
        key = f"key-{chance.randrange(habits.keys)}" if habits.keys else None
        producer.send(topic_partition, values, key=key, is_recorded=topic_partition.topic not in habits.unrecorded)


def transactional_writer(
    transactional_id: str, library: Library, habits: Habits, *, transaction_timeout_ms: int
) -> Play:
    """Transaction after transaction. An error that allows it is followed by an abort, any other by a new producer, if
    no newer life has one already.
    """

    async def play(life: Life) -> None:
        while life.goes_on() and life.is_newest:
            history = life.stage.history.client(life.name, transactional_id=transactional_id)
            producer = TransactionalProducer(
                life.cluster(),
                library,
                history,
                transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                now_ms=life.now_ms,
            )
            try:
                await producer.start()
                while life.goes_on():
                    await _write_transaction(life, producer, habits)
                    await life.think(*habits.pause_s)
            except Fatal:
                life.note_failure()
                await life.think(0.1, 1.0)
            finally:
                producer.close()

    return play


async def _write_transaction(life: Life, producer: TransactionalProducer, habits: Habits) -> None:
    """Raises Fatal."""
    producer.begin()
    try:
        for _ in range(life.chance.randint(1, 3)):
            send_some(life, producer, habits)
            if life.chance.random() < 0.5:
                await life.think(0.0, 0.1)
        if life.chance.random() < habits.idle_probability:
            await life.think(1.0, 8.0)
        if life.chance.random() < habits.abort_probability:
            await producer.abort()
        else:
            await producer.commit()
    except Abortable:
        await producer.abort()


def plain_writer(
    library: Library, habits: Habits, *, is_idempotent: bool = True, is_recognised: bool = True, acks: int = -1
) -> Play:
    """Writes without transactions. is_recognised: whether the cluster can tell each retry from a new batch."""

    async def play(life: Life) -> None:
        while life.goes_on():
            history = life.stage.history.client(life.name, idempotent=is_idempotent and is_recognised, acks=acks)
            producer = Producer(
                life.cluster(), library, history, is_idempotent=is_idempotent, acks=acks, now_ms=life.now_ms
            )
            try:
                await producer.start()
                while life.goes_on():
                    send_some(life, producer, habits)
                    if life.chance.random() < 0.5:
                        await producer.flush()
                    await life.think(*habits.pause_s)
                await producer.flush()
            except (Fatal, Abortable):
                await life.think(0.1, 1.0)
            finally:
                producer.close()

    return play


def reader(topic_partitions: Sequence[TopicPartition], isolation_level: IsolationLevel) -> Play:
    """Reads partitions from their beginning, now and then from their beginning again."""

    async def play(life: Life) -> None:
        history = life.stage.history.client(life.name, isolation_level=isolation_level)
        cluster = life.cluster()
        consumer = _consumer(life, cluster, history, isolation_level)
        while life.goes_on():
            try:
                if not consumer.positions or life.chance.random() < 0.02:
                    consumer.assign(
                        {partition: await cluster.offset(partition, EARLIEST) for partition in topic_partitions}
                    )
                await consumer.poll()
            except Disconnected:
                await cluster.back_off()
            await life.think(0.0, 0.3)
        cluster.close()

    return play


def _consumer(life: Life, cluster: Any, history: Any, isolation_level: IsolationLevel) -> Consumer:
    return Consumer(
        cluster,
        history,
        isolation_level=READ_COMMITTED if isolation_level == "read_committed" else READ_UNCOMMITTED,
        fetch_version=life.chance.choice(FETCH_VERSIONS),
        fetch_bytes=life.chance.choice(FETCH_SIZES_BYTES),
    )


def group_reader(group_id: str, topics: Sequence[str], isolation_level: IsolationLevel) -> Play:
    """A member of a group that commits what it has read, outside transactions."""

    async def play(life: Life) -> None:
        history = life.stage.history.client(life.name, group_id=group_id, isolation_level=isolation_level)
        cluster = life.cluster()
        consumer = _consumer(life, cluster, history, isolation_level)
        member = GroupMember(cluster, history, group_id, topics)
        stays_until_s = life.chance.uniform(5.0, 60.0)
        while life.goes_on() and life.stage.world.loop.time() < stays_until_s:
            try:
                if member.must_rejoin:
                    await member.join()
                    consumer.assign(await member.committed_positions())
                read = await consumer.poll()
                if read and life.chance.random() < 0.7:
                    await member.commit(consumer.positions)
            except NotMember:
                continue
            except Disconnected:
                await cluster.back_off()
            await life.think(0.05, 0.5)
        await member.leave()
        cluster.close()

    return play


def transformer(
    group_id: str,
    transactional_id: str,
    library: Library,
    input_topics: Sequence[str],
    outputs: Sequence[TopicPartition],
    *,
    transaction_timeout_ms: int,
) -> Play:
    """Consumes, transforms and produces: output and offsets in one transaction, as KIP-447 has it."""

    async def play(life: Life) -> None:
        while life.goes_on() and life.is_newest:
            transforming = _Transformer(
                life, group_id, transactional_id, library, input_topics, outputs, transaction_timeout_ms
            )
            try:
                await transforming.work()
                await transforming.leave()
            except Fatal:
                life.note_failure()
                await life.think(0.1, 1.0)
            finally:
                transforming.close()

    return play


class _Transformer:
    """From the start of its clients to their end."""

    def __init__(
        self,
        life: Life,
        group_id: str,
        transactional_id: str,
        library: Library,
        input_topics: Sequence[str],
        outputs: Sequence[TopicPartition],
        transaction_timeout_ms: int,
    ) -> None:
        self._life = life
        self._outputs = outputs
        history = life.stage.history.client(
            life.name, transactional_id=transactional_id, group_id=group_id, isolation_level="read_committed"
        )
        self._cluster = life.cluster()
        self._consumer = _consumer(life, self._cluster, history, "read_committed")
        self._member = GroupMember(self._cluster, history, group_id, input_topics)
        self._producer = TransactionalProducer(
            life.cluster(),
            library,
            history,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            now_ms=life.now_ms,
        )

    async def work(self) -> None:
        """Until all is over. Raises Fatal."""
        life = self._life
        await self._producer.start()
        is_assigned = False
        while life.goes_on():
            try:
                if self._member.must_rejoin or not is_assigned:
                    if self._member.must_rejoin:
                        await self._member.join()
                    self._consumer.assign(await self._member.committed_positions())
                    is_assigned = True
                read = await self._consumer.poll()
            except Disconnected:
                await self._cluster.back_off()
                continue
            if read:
                # After an abort the records are read again, from where the group has committed.
                is_assigned = await self._transform(read)
            await life.think(0.01, 0.3)

    async def leave(self) -> None:
        await self._member.leave()

    def close(self) -> None:
        self._member.close()
        self._producer.close()
        self._cluster.close()

    async def _transform(self, read: Sequence[ReadRecord]) -> bool:
        """One transaction; whether it was committed. Raises Fatal."""
        life, producer = self._life, self._producer
        producer.begin()
        try:
            unanswered = []
            for _, _, _, value in read:
                if value is None:
                    continue
                if life.chance.random() < 0.2:
                    unanswered.append(value)
                else:
                    producer.send(life.chance.choice(self._outputs), [life.new_value()], inputs=[value])
            if life.chance.random() < 0.1:
                await life.think(0.5, 4.0)
            await producer.flush()
            if self._member.must_rejoin:
                life.reached(A_GROUP_MOVES_ON_IN_A_TRANSACTION)
            await producer.send_offsets(
                self._member.membership, list(flattened(self._consumer.positions)), inputs=unanswered
            )
            if life.chance.random() < 0.15:
                await life.think(0.2, 6.0)
                await self._look_at_offsets()
            if life.chance.random() < 0.1:
                await producer.abort()
                return False
            await producer.commit()
        except Abortable:
            await producer.abort()
            return False
        return True

    async def _look_at_offsets(self) -> None:
        """As a member that takes over does: while the transaction holds them, they are not stable."""
        with suppress(Disconnected):
            await self._member.look_at_offsets()
