"""Batches of producers that take longer to check, or to compress anew, than one step of the event loop may.

A batch of a few KB may hold a million records, or 100 MB. Such a batch is decompressed and compressed on a thread,
where the libraries let the event loop go on, and its records are checked on the loop, some milliseconds at a stretch.
Few batches are in work at a time, so that their memory is bounded; the others wait in the order in which they came.
Small batches never wait for them. While a batch is checked nothing of the log is looked at: that is done, in one step,
when it is appended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from fencepost.broker.log.append_rules import AppendRules
from fencepost.broker.log.batch_validation import refuse_without_producer_id, refused_records
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.log.sliced_work import run_in_slices
from fencepost.protocol.compression import decompress
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    compressed_anew,
    read_header,
)
from fencepost.protocol.record_validation import invalid_records, validation_steps

T = TypeVar("T")

IN_WORK_COUNT = 2
"""Batches that are in work at a time; each may take `MAXIMUM_DECOMPRESSED_BYTES` of memory, and as much compressed."""
SLICE_S = 0.002
"""How long records are checked at a stretch, give or take a step."""


class CheckedLargeBatch(NamedTuple):
    """A batch that has passed, by these rules, all checks that need no log, compressed as they ask.

    It may be appended as long as the rules of its log are the same object.
    """

    rules: AppendRules
    header: BatchHeader
    batch: memoryview


class LargeBatches:
    """What is in work, of all partitions and connections of one broker."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(IN_WORK_COUNT)

    async def check(
        self, batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int
    ) -> CheckedLargeBatch | AppendResult:
        """Go on with a batch at which `prepare_client_batch` raised TooLargeForOneStepError; refuses as that does.

        batch: must not change until this returns.
        """
        async with self._slots:
            content: Buffer = batch[HEADER_BYTES:]
            if header.attributes & CODEC_MASK:
                limit_bytes = rules.record_rules.maximum_decompressed_bytes
                try:
                    content = await on_a_thread(partial(decompress, header.codec, content, maximum_bytes=limit_bytes))
                except DecodeError as error:
                    return refused_records(invalid_records(error))
            steps = validation_steps(content, header, rules.record_rules, now_ms=now_ms)
            refusal = await run_in_slices(steps, SLICE_S)
            if refusal is not None:
                return refused_records(refusal)
            if rules.codec is None or header.attributes & CODEC_MASK == rules.codec:
                return CheckedLargeBatch(rules, header, batch)
            if header.producer_id < NO_PRODUCER_ID:
                return refuse_without_producer_id(header)
            compress = partial(compressed_anew, header, content, rules.codec, rules.level)
            batch = memoryview(await on_a_thread(compress))
            return CheckedLargeBatch(rules, read_header(batch), batch)


async def on_a_thread(work: Callable[[], T]) -> T:
    """Do work that does not hold the interpreter for long on a thread of its own. Raises what the work raises.

    A thread is started each time: that takes a tenth of a millisecond, and none is left when the broker stops. Where
    the system has none to give, the work is done here.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # a T, where there is no error

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # it is for whoever waits
            failure = error
        try:
            loop.call_soon_threadsafe(end, result, failure)
        except RuntimeError:
            pass  # the loop has been closed meanwhile

    try:
        threading.Thread(target=run, name="large-batch", daemon=True).start()
    except RuntimeError:
        return work()
    return await future
