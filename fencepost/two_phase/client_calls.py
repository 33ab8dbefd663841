"""Initialising a producer and ending its transactions through its own client library, within a time.

The clients would wait for a broker that does not answer for as long as it takes; only confluent-kafka takes a time.
"""

from __future__ import annotations

from typing import Any


def init_by_client(producer: Any, timeout_s: float) -> None:
    """Call init_transactions. Raises the client's errors."""
    if hasattr(producer, "fencepost_statistics"):
        producer.init_transactions(timeout_s)
    else:
        producer.init_transactions()  # kafka-python waits for its max_block_ms


def commit_by_client(producer: Any, timeout_s: float) -> None:
    """Commit. Raises the client's errors, and TimeoutError; the transaction may be committed all the same."""
    _end(producer, timeout_s, commit=True)


def abort_by_client(producer: Any, timeout_s: float) -> None:
    """Abort. Raises as `commit_by_client`."""
    _end(producer, timeout_s, commit=False)


async def commit_by_client_async(producer: Any, timeout_s: float) -> None:
    """As `commit_by_client`, with aiokafka, which goes on in the background after a TimeoutError or a cancellation."""
    import asyncio

    await asyncio.wait_for(producer.commit_transaction(), timeout_s)


async def abort_by_client_async(producer: Any, timeout_s: float) -> None:
    """As `commit_by_client_async`."""
    import asyncio

    await asyncio.wait_for(producer.abort_transaction(), timeout_s)


def error_code(error: Exception) -> int | None:
    """Kafka's code in an exception of a client library, if there is one."""
    of_librdkafka = getattr(error.args[0], "code", None) if error.args else None
    code = of_librdkafka() if callable(of_librdkafka) else getattr(error, "errno", None)
    return code if isinstance(code, int) else None


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
