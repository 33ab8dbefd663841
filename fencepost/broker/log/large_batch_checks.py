"""Checks of producers' large batches: those that take longer to check or to compress than a step of the event loop may.

A batch of a few KB may hold a million records, or 100 MB. It is decompressed and compressed on a thread, where the
libraries release the interpreter, and its records are checked on the loop in time slices. At most IN_WORK_COUNT batches
are in work, which bounds their memory; the others wait in order of arrival. Small batches never wait for them. The
check does not use the log: the append does that, in one step.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from fencepost.broker.log.append_rules import AppendRules
from fencepost.broker.log.batch_validation import refuse_without_producer_id, refused_records
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.log.sliced_work import SHORT_SLICE_S, run_in_slices
from fencepost.protocol.compression import decompress
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    read_header,
    recompressed,
)
from fencepost.protocol.record_validation import invalid_records, validation_steps

T = TypeVar("T")

IN_WORK_COUNT = 2
"""The most batches in work; each may take `MAXIMUM_DECOMPRESSED_BYTES` of memory, and as much compressed."""


class CheckedLargeBatch(NamedTuple):
    """A batch that has passed all checks that need no log, compressed by the rules it was checked with.

    It may be appended while the rules of its log are the same object.
    """

    rules: AppendRules
    header: BatchHeader
    batch: memoryview


class LargeBatches:
    """The large batches in work, of all partitions and connections of one broker."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(IN_WORK_COUNT)

    async def check(
        self, batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int
    ) -> CheckedLargeBatch | AppendResult:
        """Check a batch at which `prepare_client_batch` raised TooLargeForOneStepError; refuses as that does.

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
            refusal = await run_in_slices(steps, SHORT_SLICE_S)
            if refusal is not None:
                return refused_records(refusal)
            if rules.codec is None or header.attributes & CODEC_MASK == rules.codec:
                return CheckedLargeBatch(rules, header, batch)
            if header.producer_id < NO_PRODUCER_ID:
                return refuse_without_producer_id(header)
            compress = partial(recompressed, header, content, rules.codec, rules.level)
            batch = memoryview(await on_a_thread(compress))
            return CheckedLargeBatch(rules, read_header(batch), batch)


async def on_a_thread(work: Callable[[], T]) -> T:
    """Run work that releases the interpreter on its own thread. Raises what the work raises.

    Starts a thread each time: that takes 0.1 ms, and none is left when the broker stops. Where the system has no
    thread, the work runs here.

    An error comes without the variables of the work, which hold its memory. Nothing here keeps an error that is raised:
    it refers to the frames that it passes, so that would be a reference cycle, which the collector finds late.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    outcomes: list[tuple[T | None, BaseException | None]] = []

    def end() -> None:
        if not ended.done():  # else nothing waits any more
            ended.set_result(None)

    def run() -> None:
        try:
            outcomes.append((work(), None))
        except BaseException as error:  # noqa: BLE001  # passed to the waiter
            traceback.clear_frames(error.__traceback__)
            outcomes.append((None, error))
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            pass  # the loop has been closed meanwhile

    try:
        threading.Thread(target=run, name="large-batch", daemon=True).start()
    except RuntimeError:
        return work()
    await ended
    result, failure = outcomes.pop()
    if failure is None:
        return result  # type: ignore[return-value]  # a T, where there is no error
    try:
        raise failure
    finally:
        del failure
