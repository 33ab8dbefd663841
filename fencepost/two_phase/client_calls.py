"""The calls of client libraries that a commit makes, each within a time: those that block, and those of asyncio.

The clients would wait for a broker that does not answer for as long as it takes; only confluent-kafka takes a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from fencepost.two_phase.preparing import prepare, prepare_async, require_accepted
from fencepost.two_phase.tokens import Token

T = TypeVar("T")


class ClientCalls(Protocol):
    """The calls on a producer. Each raises the client's errors."""

    async def initialize(self, producer: Any, timeout_s: float) -> None: ...
    async def begin(self, producer: Any) -> None: ...
    async def prepare(self, producer: Any, timeout_s: float, sent: Sequence[Awaitable[Any]]) -> Token:
        """Raises as `preparing.prepare`. sent: the futures of the transaction's records, of aiokafka alone."""

    async def commit(self, producer: Any, timeout_s: float) -> None:
        """Raises TimeoutError, too; the transaction may be committed all the same."""

    async def abort(self, producer: Any, timeout_s: float) -> None:
        """Raises as `commit`."""


class BlockingCalls:
    """The calls on a producer of confluent-kafka or kafka-python: none of them suspends."""

    async def initialize(self, producer: Any, timeout_s: float) -> None:
        if hasattr(producer, "fencepost_statistics"):
            producer.init_transactions(timeout_s)
        else:
            longest_ms = producer.config["max_block_ms"]
            producer.config["max_block_ms"] = min(longest_ms, timeout_s * 1000)
            try:
                producer.init_transactions()
            finally:
                producer.config["max_block_ms"] = longest_ms

    async def begin(self, producer: Any) -> None:
        producer.begin_transaction()

    async def prepare(self, producer: Any, timeout_s: float, sent: Sequence[Awaitable[Any]]) -> Token:
        return prepare(producer, timeout_s=timeout_s)

    async def commit(self, producer: Any, timeout_s: float) -> None:
        _end(producer, timeout_s, commit=True)

    async def abort(self, producer: Any, timeout_s: float) -> None:
        _end(producer, timeout_s, commit=False)


class LoopCalls:
    """The calls on a producer of aiokafka, which continues in the background after a TimeoutError or a cancellation."""

    async def initialize(self, producer: Any, timeout_s: float) -> None:
        await _within(producer.start(), timeout_s)

    async def begin(self, producer: Any) -> None:
        await producer.begin_transaction()

    async def prepare(self, producer: Any, timeout_s: float, sent: Sequence[Awaitable[Any]]) -> Token:
        token = await prepare_async(producer, timeout_s=timeout_s)
        await require_accepted(sent)
        return token

    async def commit(self, producer: Any, timeout_s: float) -> None:
        await _within(producer.commit_transaction(), timeout_s)

    async def abort(self, producer: Any, timeout_s: float) -> None:
        await _within(producer.abort_transaction(), timeout_s)


def run_blocking(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose calls all block, without an event loop. Raises TypeError if one of them is asyncio's."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
    raise TypeError("expected a Coordinator and a client that blocks: use the function that ends in _async")


async def settled(result: T | Awaitable[T]) -> T:
    """Return the result of a call on a `Coordinator` or on an `AsyncCoordinator`."""
    return await result if inspect.isawaitable(result) else result


def error_code(error: Exception) -> int | None:
    """Kafka's code in an exception of a client library, if there is one."""
    of_librdkafka = getattr(error.args[0], "code", None) if error.args else None
    code = of_librdkafka() if callable(of_librdkafka) else getattr(error, "errno", None)
    return code if isinstance(code, int) else None


async def _within(call: Awaitable[T], timeout_s: float) -> T:
    import asyncio

    return await asyncio.wait_for(call, timeout_s)


def _end(producer: Any, timeout_s: float, *, commit: bool) -> None:
    if hasattr(producer, "fencepost_statistics"):
        (producer.commit_transaction if commit else producer.abort_transaction)(timeout_s)
        return
    # kafka-python: as its own methods, but with a time.
    manager = producer._transaction_manager  # noqa: SLF001
    result = manager.begin_commit() if commit else manager.begin_abort()
    producer._sender.wakeup()  # noqa: SLF001
    if not result.wait(timeout_s * 1000):
        raise TimeoutError(f"the coordinator did not answer within {timeout_s:g} s")
