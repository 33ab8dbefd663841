"""Preparing: flushes a producer's open transaction and finds the pair by which any process can end it.

No client library has a request for that: a transaction is prepared as soon as all its records are acknowledged.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fencepost.two_phase.idle_polling import IDLE_POLLING
from fencepost.two_phase.tokens import NeedsRecovery, NotPrepared, Token

STATISTICS_INTERVAL_MS = 200
"""The longest wait for the pair after an abort. Statistics cost 0.1 ms of processor time each, and as much to read."""
STATISTICS_INTERVAL_OF_EACH_MS = 20
"""The same if each transaction has another pair."""
POLL_S = 0.05
ERRONEOUS_STATE = -172
LAST_THAT_KEEPS_ITS_PAIR = (2, 16)
"""The newest librdkafka (major, minor) of which it is known that all transactions of a session have one pair, until one
is aborted. One of transaction version 2 has another pair for each: then the statistics have to be new."""


class _Seen:
    """The latest statistics of a producer, None from a moment on when its pair may have changed."""

    statistics: dict[str, Any] | None = None

    @property
    def has_pair(self) -> bool:
        return self.statistics is not None and self.statistics["producer_id"] >= 0


_Producer: Any = object
"""Stands for confluent_kafka.Producer, which is imported only where one is made."""


class _TwoPhase(_Producer):  # type: ignore[misc]  # confluent-kafka has no types
    """A two-phase commit's additions to a confluent_kafka.Producer; `confluent_producer` puts them in front of one."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        transactional_id = config.get("transactional.id")
        if not transactional_id:
            raise ValueError("a two-phase commit needs a transactional.id")
        self.fencepost_transactional_id: str = transactional_id
        self.fencepost_polling = threading.Lock()
        self.fencepost_is_idle = True
        self.fencepost_is_prepared = False
        # Without a reference to the producer: a cycle would keep its threads until the garbage collector runs.
        self._seen = seen = _Seen()
        own: Callable[[str], object] | None = config.get("stats_cb")

        self._keeps_pair = keeps_pair = _keeps_pair()

        def took_statistics(text: str) -> None:
            if not (keeps_pair and seen.has_pair):  # reading them is half of their cost
                seen.statistics = json.loads(text).get("eos")
            if own is not None:
                own(text)

        interval_ms = STATISTICS_INTERVAL_MS if keeps_pair else STATISTICS_INTERVAL_OF_EACH_MS
        super().__init__({"statistics.interval.ms": interval_ms, **config, "stats_cb": took_statistics})
        IDLE_POLLING.add(self)

    @property
    def fencepost_statistics(self) -> dict[str, Any] | None:
        """Statistics with the pair of the open transaction; None until they come."""
        return self._seen.statistics

    def _forget_pair(self) -> None:
        with self.fencepost_polling:  # else another thread may yet take statistics from before
            while self.poll(0):
                pass
            self._seen.statistics = None

    def init_transactions(self, *timeout: float) -> None:
        super().init_transactions(*timeout)
        self._forget_pair()

    def note_pair(self, producer_id: int, producer_epoch: int) -> None:
        """Take the pair that `init_transactions` has got, as the coordinator shows it: statistics are late."""
        if self._keeps_pair:
            self._seen.statistics = {"producer_id": producer_id, "producer_epoch": producer_epoch}

    def require_open(self) -> None:
        """Raise NotPrepared unless the open transaction can be committed, with librdkafka's reason.

        It has no other call that says so at once: a second begin is refused, and the refusal names the reason.
        """
        if self.fencepost_is_prepared or not self.fencepost_is_idle:
            try:
                super().begin_transaction()
            except Exception as error:
                cause: Any = error.args[0]
                if cause.code() == ERRONEOUS_STATE and not cause.txn_requires_abort() and not cause.fatal():
                    return
                raise NotPrepared(f"the producer has no transaction that can be committed: {cause.str()}") from error
            super().abort_transaction()  # it was ended without this class
        raise NotPrepared("the producer has no transaction that can be committed: none is open")

    def require_new_pair(self) -> None:
        """Forget the pair, after a flush, if each transaction may have another one."""
        if not self._keeps_pair:
            self._forget_pair()

    def poll_if_idle(self) -> None:
        """Serve librdkafka's queue, if no transaction is open and nobody else polls."""
        if self.fencepost_polling.acquire(blocking=False):
            try:
                if self.fencepost_is_idle:
                    self.poll(0)
            finally:
                self.fencepost_polling.release()

    def begin_transaction(self) -> None:
        with self.fencepost_polling:
            self.fencepost_is_idle = False
        super().begin_transaction()
        self.fencepost_is_prepared = False

    def commit_transaction(self, *timeout: float) -> None:
        try:
            super().commit_transaction(*timeout)
            self.fencepost_is_prepared = False
            self.require_new_pair()
        finally:
            self.fencepost_is_idle = True

    def abort_transaction(self, *timeout: float) -> None:
        try:
            super().abort_transaction(*timeout)
            self.fencepost_is_prepared = False
            self._forget_pair()
        finally:
            self.fencepost_is_idle = True

    def close(self, *arguments: Any, **options: Any) -> Any:
        IDLE_POLLING.remove(self)
        with self.fencepost_polling:
            if self.fencepost_is_prepared:
                # confluent-kafka's close aborts, and the database may have committed. Its threads and sockets end
                # with the last reference to this object, which aborts nothing.
                self.produce = _refuse_to_write
                return True
            return super().close(*arguments, **options)

    def __exit__(self, *_: object) -> None:
        self.close()  # the inherited one is not this class's `close`


def confluent_producer(config: Mapping[str, Any]) -> Any:
    """Make a confluent_kafka.Producer that `prepare` understands: it reads the pair from librdkafka's statistics.

    Between transactions a background thread polls it, and calls its callbacks. `close`, also at the end of a `with`,
    leaves a prepared transaction open; librdkafka's own would abort it.
    config: librdkafka's, with `transactional.id`; a `stats_cb` of yours is called, too. Raises ValueError without an
    id.
    """
    import confluent_kafka

    class TwoPhaseProducer(_TwoPhase, confluent_kafka.Producer):  # type: ignore[misc]  # as above
        pass

    return TwoPhaseProducer(config)


def prepare(producer: Any, *, timeout_s: float = 30) -> Token:
    """Flush the open transaction of a producer and return its token. Write nothing more to it after that.

    producer: one from `confluent_producer`, or a kafka.KafkaProducer; use `prepare_async` for aiokafka.
    Raises NotPrepared if a record was refused, or is not acknowledged in time; TypeError for another producer.
    """
    if hasattr(producer, "fencepost_statistics"):
        return _prepare_confluent(producer, timeout_s)
    manager = getattr(producer, "_transaction_manager", None)
    if type(producer).__module__.startswith("kafka.") and manager is not None:
        return _prepare_kafka_python(producer, manager, timeout_s)
    raise TypeError(
        f"cannot find the producer id of a {type(producer).__module__}.{type(producer).__qualname__}: use "
        "confluent_producer(config), a kafka.KafkaProducer with a transactional_id, or prepare_async with aiokafka"
    )


async def prepare_async(producer: Any, *, timeout_s: float = 30) -> Token:
    """As `prepare`, for an aiokafka.AIOKafkaProducer with a transactional_id.

    aiokafka tells of a refused record in the future of its `send` alone: await these futures before, or write inside
    `sends_watched`, as `transaction_async` does.
    """
    import asyncio

    manager = getattr(producer, "_txn_manager", None)
    if manager is None or not getattr(manager, "transactional_id", None):
        raise TypeError(
            f"expected an aiokafka.AIOKafkaProducer with a transactional_id; got a {type(producer).__qualname__}"
        )
    try:
        await asyncio.wait_for(producer.flush(), timeout_s)
    except TimeoutError:
        raise NotPrepared(f"records were not acknowledged within {timeout_s:g} s") from None
    _require(manager.state.name == "IN_TRANSACTION", manager.state.name)
    return Token(manager.producer_id, manager.producer_epoch, manager.transactional_id)


def hand_over(producer: Any, token: Token) -> None:
    """Have a producer refuse to abort a prepared transaction: from now on its database decides how it ends."""
    if hasattr(producer, "_txn_manager"):

        async def refuse(*_: object) -> None:
            raise _not_ours_to_abort(token)

    else:

        def refuse(*_: object) -> None:  # type: ignore[misc]  # the same, for the clients without asyncio
            raise _not_ours_to_abort(token)

    producer.abort_transaction = refuse


def take_back(producer: Any) -> None:
    """Let a producer end its transaction again that was handed over: the database has decided."""
    del producer.abort_transaction


def _not_ours_to_abort(token: Token) -> NeedsRecovery:
    return NeedsRecovery(
        f"the database has committed {token}, or may have: its producer does not abort it; call recover and make "
        "another producer",
        token,
    )


def _refuse_to_write(*_: object, **__: object) -> None:
    raise RuntimeError("the producer is closed, and its last transaction was prepared: make another producer")


@contextmanager
def sends_watched(producer: Any) -> Iterator[list[Awaitable[Any]]]:
    """Collect the futures of all records that are sent with an aiokafka producer inside the context."""
    futures: list[Awaitable[Any]] = []

    def watched(send: Callable[..., Awaitable[Awaitable[Any]]]) -> Callable[..., Awaitable[Awaitable[Any]]]:
        async def sent(*arguments: Any, **options: Any) -> Awaitable[Any]:
            future = await send(*arguments, **options)
            futures.append(future)
            return future

        return sent

    producer.send, producer.send_batch = watched(producer.send), watched(producer.send_batch)
    try:
        yield futures
    finally:
        del producer.send, producer.send_batch


async def require_accepted(futures: Sequence[Awaitable[Any]]) -> None:
    """Raise NotPrepared if one of the records was refused. All are acknowledged: they were flushed."""
    for future in futures:
        try:
            await future
        except Exception as error:
            raise NotPrepared(f"a record was refused: {error!r}") from error


def _keeps_pair() -> bool:
    import confluent_kafka

    version: str = confluent_kafka.libversion()[0]
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) <= LAST_THAT_KEEPS_ITS_PAIR


def _prepare_confluent(producer: Any, timeout_s: float) -> Token:
    give_up_at_s = time.monotonic() + timeout_s
    try:
        remaining = producer.flush(timeout_s)
    except SystemError as error:  # confluent-kafka's way to say that the producer has failed for good
        raise NotPrepared(
            "the producer has failed: a later session has its transactional id, or its log says why"
        ) from error
    if remaining:
        raise NotPrepared(f"{remaining} records were not acknowledged within {timeout_s:g} s")
    producer.require_new_pair()
    while (statistics := producer.fencepost_statistics) is None or statistics["producer_id"] < 0:
        producer.poll(POLL_S)
        if time.monotonic() > give_up_at_s:
            raise NotPrepared(f"librdkafka gave no statistics within {timeout_s:g} s")
    producer.require_open()
    producer.fencepost_is_prepared = True
    producer.fencepost_is_idle = True  # all is acknowledged; who ends it, and when, is open
    return Token(statistics["producer_id"], statistics["producer_epoch"], producer.fencepost_transactional_id)


def _prepare_kafka_python(producer: Any, manager: Any, timeout_s: float) -> Token:
    from kafka.errors import KafkaTimeoutError

    try:
        producer.flush(timeout=timeout_s)
    except KafkaTimeoutError:
        raise NotPrepared(f"records were not acknowledged within {timeout_s:g} s") from None
    state = manager._current_state.name  # noqa: SLF001  # it has no public way
    if manager.has_error():
        raise NotPrepared(f"the transaction has failed: {manager.last_error or state}")
    _require(state == "IN_TRANSACTION", state)
    pair = manager.producer_id_and_epoch
    return Token(pair.producer_id, pair.epoch, manager.transactional_id)


def _require(is_in_transaction: bool, state: str) -> None:
    """Raise NotPrepared for a producer that is in another state."""
    if not is_in_transaction:
        raise NotPrepared(f"the producer has no transaction that can be committed: it is in state {state}")
