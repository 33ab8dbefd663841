"""A client of the scenario: it remembers its identity, the next sequence, and what it sent.

A party does only what a step says: it retries nothing, waits for nothing and draws no conclusions but those that every
Kafka producer draws (its identity from InitProducerId and EndTxn, the next sequence from an accepted batch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.scenarios.runner.arguments import ArgumentError, Arguments, Identity
from tests.scenarios.runner.stage import UNDER_WAY_S, Stage
from tests.simulation.client import TIMEOUT_S, Disconnected, SimulatedClient

NOBODY = Identity(-1, -1)
DISCONNECTED = "disconnected"
RETRIES = 40
RETRY_PAUSE_S = 0.1
RESTART_AFTER_REFUSALS = 5
RETRIES_OF_SEVERAL = 300
PATIENCE_S = 2.0
"""How long a client waits for one answer where another broker may take over meanwhile."""

# What every client asks again after, whatever it asked.
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
RETRIABLE_OF_SEVERAL = RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT}
"""A broker may not have heard of a topic yet, and a flush may take longer than a request."""


class Request(Protocol):
    """A kind of request: what its words mean, and how its reply is described."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        """The request that the words stand for. Raises ArgumentError."""
        ...

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        """The answer in words; the party draws its conclusions from it."""
        ...


@dataclass
class Call:
    """One request, ready to go.

    to:        the broker that it is for, or the partition whose leader that is.
    identity:  that it bears.
    sequences: the sequence behind each batch, once it is accepted.
    """

    request: Request
    api: str
    message: Any
    version: int
    to: int | TopicPartition
    identity: Identity = NOBODY
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


class Party:
    """A client of one name. transaction_version: 1 or 2, which decides the versions of its requests.

    transactional_id: None for a client that is no transactional producer.
    """

    def __init__(self, stage: Stage, name: str, *, transactional_id: str | None, transaction_version: int = 1) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.transaction_version = transaction_version
        self.identity = NOBODY
        self.next_sequences: dict[TopicPartition, int] = {}
        self.last: dict[str, Call] = {}
        self.stage = stage
        self._client = stage.world.client(name)
        self._under_way: list[tuple[Call, asyncio.Task[Any]]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to be received."""
        return bool(self._under_way)

    def became(self, identity: Identity) -> None:
        """It goes on under this identity; a new one begins its sequences at 0."""
        if identity != self.identity:
            self.identity = identity
            self.next_sequences.clear()

    # Asking

    async def ask(self, call: Call) -> list[str]:
        """Send a request and tell its answer."""
        self.last[call.api] = call
        return self._described(call, await self._answer(call))

    async def send(self, call: Call) -> None:
        """Send a request and go on while it is decided on; `receive` tells the answer."""
        self.last[call.api] = call
        task = asyncio.get_running_loop().create_task(self._answer(call), name=f"{self.name}-{call.api}")
        self._under_way.append((call, task))
        await self.stage.wait(UNDER_WAY_S)

    async def receive(self) -> list[str]:
        """The answer to the oldest request that has none yet."""
        if not self._under_way:
            raise ArgumentError(f"{self.name} waits for no answer")
        call, task = self._under_way.pop(0)
        return self._described(call, await task)

    async def give_up(self) -> None:
        """Break its connections, and with them what is under way."""
        self._client.close()
        for _, task in self._under_way:
            await task
        self._under_way.clear()

    def _described(self, call: Call, response: Any) -> list[str]:
        return [DISCONNECTED] if response is None else call.request.describe(self, call, response)

    async def _answer(self, call: Call) -> Any:
        """The response; None when there is none."""
        stage = self.stage
        if not stage.is_forgiving:
            return await self._once(self._client, call)
        if stage.engine is not None:
            return await self._ask_the_leader(call)
        return await self._finish_once_more(call)

    def _node_id(self, call: Call) -> int:
        return call.to if isinstance(call.to, int) else self.stage.leader_id(call.to)

    async def _once(self, client: SimulatedClient, call: Call, timeout_s: float = TIMEOUT_S) -> Any:
        machine = self.stage.machine(self._node_id(call))
        try:
            return await client.send(machine.broker.address, call.message, call.version, timeout_s=timeout_s)
        except Disconnected:
            return None

    async def _ask_the_leader(self, call: Call) -> Any:
        """Ask until there is an answer that is more than "try again", of whatever broker leads by then."""
        for _ in range(RETRIES_OF_SEVERAL):
            response = await self._once(self._client, call, PATIENCE_S)
            errors = set() if response is None else set(error_codes(response))
            retriable = RETRIABLE if call.api == "DeleteTopic" else RETRIABLE_OF_SEVERAL
            if response is not None and retriable.isdisjoint(errors):
                return response
            if isinstance(call.to, int):
                call.to = call.to % len(self.stage.machines) + 1
            await self.stage.wait(RETRY_PAUSE_S)
        self.stage.unanswered.append(f"{self.name} gets no answer to its {call.api}")
        return None

    async def _finish_once_more(self, call: Call) -> Any:
        """Ask until there is an answer that is more than "try again", bringing the broker back when it is down."""
        response: Any = None
        refusals = 0
        for _ in range(RETRIES):
            machine = self.stage.machine(self._node_id(call))
            await self.stage.bring_up(machine)
            response = await self._once(self._client, call)
            if response is not None:
                errors = set(error_codes(response))
                if not RETRIABLE.intersection(errors):
                    return response
                refusals += 1
                if refusals % RESTART_AFTER_REFUSALS == 0 and ErrorCode.CONCURRENT_TRANSACTIONS not in errors:
                    machine.kill()
            await self.stage.wait(RETRY_PAUSE_S)
        return response


def error_codes(response: Any) -> Iterator[ErrorCode]:
    """Every error code anywhere in a response."""
    for name in getattr(type(response), "__slots__", ()):
        value = getattr(response, name)
        if name.endswith("error_code"):
            yield ErrorCode(value)
        elif isinstance(value, list):
            for item in value:
                yield from error_codes(item)
