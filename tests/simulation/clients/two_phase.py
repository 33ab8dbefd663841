"""Applications that commit in a database and in the log, both or neither, and services that end what they leave open.

Two ways to recover: a session keeps the open transaction of the one before (KIP-939), or a process ends it by its pair,
which any client can do where the operator has made its transactional id two-phase by name.
Source: KIP-939; its recipe, with the fence in the database before the one at the broker, and looked at again after it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final

from fencepost.broker.transaction.metadata import Producer
from fencepost.history.writer import Call
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.applications import Habits, Play, send_some
from tests.simulation.clients.cluster import TRANSACTION, Cluster
from tests.simulation.clients.ledger import Fenced, Ledger, Overruling, Token
from tests.simulation.clients.libraries import Library, Reaction
from tests.simulation.clients.producer import Abortable, Fatal, GroupMembership, TransactionalProducer
from tests.simulation.situations import (
    A_KEPT_TRANSACTION_IS_ENDED,
    A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR,
    A_PREPARED_TRANSACTION_IS_OVERRULED,
)

VERSION_WITH_KEEP: Final = 6
END_VERSION_2: Final = 5
HAUNT_PROBABILITY: Final = 0.2
REPEAT_PROBABILITY: Final = 0.5
DEATH_PROBABILITY: Final = 0.5
OFFSETS_PROBABILITY: Final = 0.3
OVERRULE_PROBABILITY: Final = 0.15
RESOLVE_PROBABILITY: Final = 0.5
LONGEST_PATIENCE_S: Final = 60.0


class TwoPhaseProducer(TransactionalProducer):
    """A producer whose transactions no time-out ends: `prepare`, then `deciding`, then `complete`.

    keeps: whether it asks for that itself, and keeps what it finds open; else its name has to be two-phase.
    kept:  the pair of the transaction that it has kept, and has to end with `end_kept`.
    """

    def __init__(self, *about: Any, keeps: bool, **options: Any) -> None:
        super().__init__(*about, **options)
        self.kept: Producer | None = None
        self._keeps = keeps

    @property
    def pair(self) -> Producer:
        return Producer(self.identity.producer_id, self.identity.producer_epoch)

    async def start(self) -> None:
        """Get a pair, and fence its earlier owner. Raises Fatal."""
        if not self._keeps:
            await super().start()
            return
        request = self._request(keep_prepared_txn=True)
        try:
            response = await self._initialize(request, VERSION_WITH_KEEP)
        except Abortable as error:
            raise Fatal(str(error)) from None
        if response.ongoing_txn_producer_id >= 0:
            self.kept = Producer(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)

    async def end_kept(self, *, committed: bool) -> None:
        """Raises Fatal."""
        try:
            await self._request_end(None, committed=committed)
        except Abortable as error:
            raise Fatal(str(error)) from None
        self.kept = None
        self._sender.start_over(new_sequences=True)

    async def prepare(self) -> Token | None:
        """Have all records accepted; None if there are none. Raises Abortable and Fatal."""
        await self.flush()
        return Token(self.transactional_id, self.pair) if self._partitions or self._groups else None

    def deciding(self) -> Call:
        """From now on the transaction may be committed, by any process that finds the decision."""
        return self._history.commit()

    async def complete(self, call: Call) -> None:
        """Commit what was decided. Raises Fatal: then another process does."""
        try:
            await self._request_end(None, committed=True)
        except (Abortable, Fatal) as error:
            call.unknown(str(error))
            raise Fatal(str(error)) from None
        call.ok()
        self._start_over()

    async def _init_producer_id(self, *, keeps_identity: bool = False, timeout_ms: int = 60_000) -> None:
        if not self._keeps:
            await super()._init_producer_id(keeps_identity=keeps_identity, timeout_ms=timeout_ms)
            return
        request = self._request()
        if keeps_identity:
            request.producer_id, request.producer_epoch = self.pair
        await self._initialize(request, VERSION_WITH_KEEP)

    def _request(self, **fields: Any) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            enable2_pc=True,
            **fields,
        )


class _Session:
    """One process's way through recovery and transactions, until a later process fences it.

    number: of the processes of one life, in which each has a history of its own.
    keeps: one transactional id for all processes, kept from one to the next; else each has an id of its own, which no
        other ever uses: a process that is late cannot abort what its successor has decided.
    """

    def __init__(
        self,
        life: Life,
        ledger: Ledger,
        name: str,
        library: Library,
        habits: Habits,
        *,
        number: int,
        keeps: bool,
        haunts: bool,
        transaction_timeout_ms: int,
    ) -> None:
        self._life = life
        self._ledger = ledger
        self._library = library
        self._habits = habits
        self._keeps = keeps
        self._haunts = haunts
        self._cluster = life.cluster()
        self._claim = ledger.claim()
        # Only within one process its offsets are in order.
        self._group_id = f"{name}-group-{self._claim.generation}"
        transactional_id = name if keeps else f"{name}-{self._claim.generation}"
        history = life.stage.history.client(f"{life.name}/{number}", transactional_id=transactional_id)
        self._producer = TwoPhaseProducer(
            life.cluster(),
            library,
            history,
            transactional_id,
            keeps=keeps,
            transaction_timeout_ms=transaction_timeout_ms,
            now_ms=life.now_ms,
        )

    async def live(self) -> bool:
        """Recover, then commit until all is over; whether it came to the end of its recovery."""
        life, is_recovered = self._life, False
        try:
            await self._recover()
            is_recovered = True
            while life.goes_on():
                await self._transact()
                await life.think(*self._habits.pause_s)
        except (Fatal, Fenced):
            life.note_failure()
            await life.think(0.0, 0.3)
        finally:
            self._producer.close()
            self._cluster.close()
        return is_recovered

    async def _recover(self) -> None:
        """End what earlier processes have left open, as the database says. Raises Fenced and Fatal."""
        await self._life.think(0.0, 0.05)
        if self._keeps:
            await self._recover_by_keeping()
        else:
            await self._recover_by_pair()

    async def _recover_by_keeping(self) -> None:
        producer, token = self._producer, self._claim.token
        await self._start()
        await self._life.think(0.0, 0.3)
        # A process that was late with its InitProducerId has kept what its successor decides on: it leaves it alone.
        self._ledger.require(self._claim.generation)
        if producer.kept is not None:
            committed = token is not None and token.producer == producer.kept
            await self._end_kept(committed=committed)
            self._life.reached(A_KEPT_TRANSACTION_IS_ENDED)

    async def _end_kept(self, *, committed: bool) -> None:
        """Sometimes twice at once, as a client that got no answer in time and has another connection."""
        producer = self._producer
        repeat = None
        if self._life.chance.random() < REPEAT_PROBABILITY:
            request = _end_request(Token(producer.transactional_id, producer.pair), committed=committed)
            repeat = asyncio.create_task(self._ask(producer.transactional_id, request, self._library.end_txn_version))
        try:
            await producer.end_kept(committed=committed)
            self._note_pair()
            if repeat is not None:
                await repeat
        finally:
            if repeat is not None:
                repeat.cancel()

    async def _recover_by_pair(self) -> None:
        life, (generation, token) = self._life, self._claim
        if token is not None:
            await self._commit_by_pair(token)
        # Nothing else that they did was decided, and nothing can be any more.
        for transactional_id in self._ledger.unsettled(generation, is_over=not life.goes_on()):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
            await self._ask(transactional_id, request, self._library.init_producer_id_version)
            self._ledger.settled.add(transactional_id)
        self._ledger.require(generation)
        if life.goes_on():
            self._ledger.ids[self._producer.transactional_id] = generation
            await self._start()

    async def _commit_by_pair(self, token: Token) -> None:
        """Commit what was decided, also if another process has kept it and died: then as a session that keeps it."""
        end_version = self._library.end_txn_version
        response = await self._ask(token.transactional_id, _end_request(token, committed=True), end_version)
        if response.error_code == ErrorCode.NONE:
            self._life.reached(A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR)
        while response.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            keep = InitProducerIdRequest(
                transactional_id=token.transactional_id, transaction_timeout_ms=1_000, keep_prepared_txn=True
            )
            kept = await self._ask(token.transactional_id, keep, VERSION_WITH_KEEP)
            if (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) != token.producer:
                return  # it was ended
            own = Token(token.transactional_id, Producer(kept.producer_id, kept.producer_epoch))
            response = await self._ask(token.transactional_id, _end_request(own, committed=True), end_version)

    async def _ask(self, transactional_id: str, message: Any, version: int) -> Any:
        """Ask a coordinator until it says how it is, which may be a refusal. Raises Fatal when that takes too long."""
        loop, cluster = self._life.stage.world.loop, self._cluster
        deadline_s = loop.time() + LONGEST_PATIENCE_S
        while loop.time() < deadline_s:
            try:
                response = await cluster.ask_coordinator(TRANSACTION, transactional_id, message, version)
            except Disconnected:
                await cluster.back_off()
                continue
            error = ErrorCode(response.error_code)
            reaction = self._library.reaction(ApiKey(message.api_key), error)
            if error is ErrorCode.NONE or reaction not in (Reaction.RETRY, Reaction.FIND):
                return response
            if reaction is Reaction.FIND:
                cluster.forget_coordinator(TRANSACTION, transactional_id)
            await cluster.back_off()
        raise Fatal(f"the coordinator of {transactional_id} says nothing that counts")

    async def _start(self) -> None:
        await self._producer.start()
        self._note_pair()

    def _note_pair(self) -> None:
        self._ledger.given(self._producer.transactional_id, self._producer.pair)

    async def _transact(self) -> None:
        """One transaction on both sides. Raises Fenced and Fatal."""
        life, producer, ledger, generation = self._life, self._producer, self._ledger, self._claim.generation
        await life.think(0.0, 0.02)
        ledger.clear(generation)
        producer.begin()
        try:
            for _ in range(life.chance.randint(1, 2)):
                send_some(life, producer, self._habits)
                if life.chance.random() < 0.3:
                    await life.think(0.0, 0.3)
            if life.chance.random() < self._habits.abort_probability:
                await producer.abort()
                return
            if life.chance.random() < OFFSETS_PROBABILITY:
                position = (*self._habits.topics[0], len(ledger.decisions))
                await producer.send_offsets(GroupMembership(self._group_id), [position])
            token = await producer.prepare()
        except Abortable:
            await producer.abort()
            return
        if token is None:
            await producer.commit()
            return
        await self._wait()
        call = producer.deciding()
        try:
            ledger.record(generation, token, life.stage.world.loop.time())
        except Fenced as error:
            call.fail(str(error))
            await producer.abort()
            raise
        await self._wait()
        await producer.complete(call)
        self._note_pair()

    async def _wait(self) -> None:
        """What comes between two steps: little, much, or a ghost."""
        if self._haunts and self._life.chance.random() < HAUNT_PROBABILITY:
            await self._haunt()
        await self._life.think(*self._life.chance.choice(((0.0, 0.02), (0.0, 0.5), (0.3, 2.5))))

    async def _haunt(self) -> None:
        """Send what an earlier process may have sent long ago; nobody waits for the answer in earnest."""
        life, transactional_id = self._life, self._producer.transactional_id
        stale = self._ledger.identities.get(transactional_id, [])[:-1]
        request: Any
        if stale and life.chance.random() < 0.8:
            token = Token(transactional_id, life.chance.choice(stale[-4:]))
            if life.chance.random() < 0.4:
                request = _end_request(token, committed=life.chance.random() < 0.5)
                version = self._library.end_txn_version
            else:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=1_000,
                    producer_id=token.producer.producer_id,
                    producer_epoch=token.producer.producer_epoch,
                    enable2_pc=True,
                    keep_prepared_txn=life.chance.random() < 0.5,
                )
                version = VERSION_WITH_KEEP
        else:
            # Another one that keeps, for a short time, and dies.
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=1_000, keep_prepared_txn=True
            )
            version = VERSION_WITH_KEEP
        try:
            response = await self._cluster.ask_coordinator(TRANSACTION, transactional_id, request, version)
        except Disconnected:
            return
        if version == VERSION_WITH_KEEP and response.error_code == ErrorCode.NONE:
            self._ledger.given(transactional_id, Producer(response.producer_id, response.producer_epoch))


def two_phase_writer(
    name: str,
    library: Library,
    habits: Habits,
    *,
    keeps: bool,
    haunts: bool,
    has_rival: bool,
    transaction_timeout_ms: int,
) -> Play:
    """Recovers, then commits one transaction after another; it dies at any moment, and begins again. Its last process,
    once all is over, recovers alone.

    haunts: old requests come up again.
    has_rival: now and then another process begins, as if nobody else were there.
    """

    async def play(life: Life) -> None:
        ledger = life.stage.world.ledgers.setdefault(name, Ledger())
        numbers = itertools.count()

        def new_session() -> _Session:
            return _Session(
                life,
                ledger,
                name,
                library,
                habits,
                number=next(numbers),
                keeps=keeps,
                haunts=haunts,
                transaction_timeout_ms=transaction_timeout_ms,
            )

        rival = asyncio.create_task(_rival(life, new_session)) if has_rival else None
        is_recovered = False
        while life.is_newest and (life.goes_on() or not is_recovered):
            await life.think(0.0, 0.05)
            session = new_session()
            if life.goes_on() and life.chance.random() < DEATH_PROBABILITY:
                await _live_for(session, life.chance.uniform(0.0, 1.5))
            else:
                is_recovered = await session.live() or is_recovered
        if rival is not None:
            await rival

    return play


async def _rival(life: Life, new_session: Callable[[], _Session]) -> None:
    while life.goes_on():
        await life.think(0.3, 3.0)
        if life.goes_on():
            await _live_for(new_session(), life.chance.uniform(0.0, 1.0))


async def _live_for(session: _Session, duration_s: float) -> None:
    """Let a process work, and die at whatever it waits for then."""
    task = asyncio.create_task(session.live())
    await asyncio.wait((task,), timeout=duration_s)
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()


def resolver(names: list[str], library: Library, *, overrules: bool) -> Play:
    """An administrator, or a service that asks back: ends open transactions by their pairs, as the database says.

    overrules: now and then it aborts one whatever the database says.
    Only in version 2 a pair stands for one transaction alone.
    """

    async def play(life: Life) -> None:
        cluster = life.cluster()
        while life.goes_on():
            await life.think(0.2, 1.5)
            try:
                await _resolve(life, cluster, names, library, overrules=overrules)
            except Disconnected:
                await cluster.back_off()
        cluster.close()

    return play


async def _resolve(life: Life, cluster: Cluster, names: list[str], library: Library, *, overrules: bool) -> None:
    """Raises Disconnected."""
    request = ListTransactionsRequest(state_filters=["Ongoing"])
    listed = await cluster.send(cluster.any_node(), request, 1)
    for found in listed.transaction_states:
        transactional_id = found.transactional_id
        ledger = next((life.stage.world.ledgers.get(name) for name in names if transactional_id.startswith(name)), None)
        if ledger is None or life.chance.random() >= RESOLVE_PROBABILITY:
            continue
        described = await cluster.ask_coordinator(
            TRANSACTION, transactional_id, DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
        )
        (about,) = described.transaction_states
        if about.error_code or about.transaction_state != "Ongoing":
            continue
        if overrules and life.chance.random() < OVERRULE_PROBABILITY:
            await _overrule(life, cluster, library, ledger, transactional_id)
        elif library.transaction_version == 2:
            token = Token(transactional_id, Producer(about.producer_id, about.producer_epoch))
            committed = ledger.settle(token)
            end = _end_request(token, committed=committed)
            response = await cluster.ask_coordinator(TRANSACTION, transactional_id, end, END_VERSION_2)
            if response.error_code == ErrorCode.NONE:
                life.reached(A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR)


async def _overrule(life: Life, cluster: Cluster, library: Library, ledger: Ledger, transactional_id: str) -> None:
    """As `kafka-transactions.sh forceTerminateTransaction` does. Raises Disconnected."""
    overruling = Overruling(transactional_id, life.stage.world.loop.time())
    ledger.overruled.append(overruling)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=30_000)
    response = await cluster.ask_coordinator(TRANSACTION, transactional_id, request, library.init_producer_id_version)
    overruling.until_s = life.stage.world.loop.time()
    if response.error_code == ErrorCode.NONE:
        life.reached(A_PREPARED_TRANSACTION_IS_OVERRULED)
        ledger.given(transactional_id, Producer(response.producer_id, response.producer_epoch))


def _end_request(token: Token, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=token.transactional_id,
        producer_id=token.producer.producer_id,
        producer_epoch=token.producer.producer_epoch,
        committed=committed,
    )
