"""Checks of producers' large batches: those that take longer to check or to compress than a step of the event loop may.

A batch of a few KB may hold a million records, or 100 MB. It is decompressed and compressed on a thread, where the
libraries release the interpreter, and its records are checked on the loop in time slices. At most IN_WORK_COUNT batches
are in work, which bounds their memory; the others wait in order of arrival. Small batches never wait for them. The
check does not use the log: the append does that, in one step.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple, TypeVar

from fencepost.broker.kernel.sliced_work import SHORT_SLICE_S, run_in_slices
from fencepost.broker.kernel.threads import on_a_thread
from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.append.batch_validation import refuse_without_producer_id, refused_records
from fencepost.broker.log.log_types import AppendResult
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
