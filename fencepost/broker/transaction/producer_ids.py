"""Allocator of producer ids: never given out twice, from blocks that are reserved in the metadata store before use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import INT64_MAX, MOST_DIGITS, JsonError, parse_object, shown

log = get_logger(__name__)

RESERVATION = Place("reservation of producer ids", Policy.RETRY)

BLOCK_KEY = "producer_id_block"
LOWEST_KEY = "producer_id_lowest"
"""The lowest producer id of this history, if an older state of the store was restored: see `after_restore`."""
BLOCK_SIZE = 1000
PREFETCH_AT = 0.9  # of a block handed out: time to reserve the next
FIRST_RETRY_PAUSE_S = 0.05
LONGEST_RETRY_PAUSE_S = 5.0
SKIPPED_IDS = 1_000_000_000
"""A thousand new producers each second for eleven days."""
MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """A range of producer ids that belongs to one node; both ends inclusive."""

    first: int
    last: int


class ProducerIdsExhaustedError(Exception):
    """All 2^63 producer ids have been used."""


class ProducerIds:
    """Allocates producer ids from memory; reserves blocks in the background, with one request in flight.

    A block is recorded in the store by compare-and-set before any of its ids is given out, so several nodes may draw
    from one store, and a crash only burns the rest of a block. When it is unclear whether a write arrived, the
    store is read again: both outcomes are safe.
    lowest: ids below it were given out, or may have been, in a history that a restored backup does not have; known from
            the first block on.
    Source: KIP-98, KIP-730; Kafka's ProducerIdManager and, for the compare-and-set, its ZooKeeper predecessor.
    """

    def __init__(self, store: MetadataStore, *, node_id: int = 0) -> None:
        self._store = store
        self._node_id = node_id
        self._next = 0
        self._last = -1
        self.lowest = 0
        self._prefetched: ProducerIdBlock | None = None
        self._request: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reserve the first block, so that the first producer need not be refused.

        Wait for an unavailable store. Raises StorageError if the store's disk fails: that needs an operator.
        """
        try:
            self._prefetched = await self._reserve_block()
        except StorageError:
            raise
        except Exception:  # noqa: BLE001  # logged and retried by the request
            await asyncio.shield(self._ensure_request())

    async def close(self) -> None:
        """Cancel a running request. The block that it reserved is lost."""
        await end_tasks(self._request)
        self._request = None

    def take(self) -> int | None:
        """Return a new producer id; None if no block is reserved yet: the client gets COORDINATOR_LOAD_IN_PROGRESS and
        retries.
        """
        if self._next > self._last:
            if self._prefetched is None:
                self._ensure_request()
                return None
            self._next, self._last = self._prefetched
            self._prefetched = None
        producer_id = self._next
        self._next += 1
        if self._prefetched is None and self._last - producer_id <= BLOCK_SIZE * (1 - PREFETCH_AT):
            self._ensure_request()
        return producer_id

    def _ensure_request(self) -> asyncio.Task[None]:
        if self._request is None or self._request.done():
            self._request = RESERVATION.start_retrying(self._prefetch)
        return self._request

    async def _prefetch(self) -> None:
        pause_s = FIRST_RETRY_PAUSE_S
        while True:
            try:
                self._prefetched = await self._reserve_block()
            except ProducerIdsExhaustedError:
                log.critical("producer_ids_exhausted")
                return
            except Exception as error:  # noqa: BLE001  # any error of the store's engine: a later attempt may succeed
                log.warning("producer_id_block_not_reserved", reason=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_RETRY_PAUSE_S)
            else:
                log.debug("producer_id_block_reserved", first=self._prefetched.first, last=self._prefetched.last)
                return

    async def _reserve_block(self) -> ProducerIdBlock:
        if not self.lowest:
            lowest, _ = await self._store.read_versioned(LOWEST_KEY)
            self.lowest = int(lowest or 0)
        while True:
            value, version = await self._store.read_versioned(BLOCK_KEY)
            first = 0 if value is None else _decode_block(value).last + 1
            if first > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise ProducerIdsExhaustedError
            block = ProducerIdBlock(first, first + BLOCK_SIZE - 1)
            if await self._store.compare_and_set(BLOCK_KEY, _encode_block(block, self._node_id), version):
                return block


def above_reserved_blocks(value: bytes) -> bytes:
    """Return the record of an old block, moved by SKIPPED_IDS: no id is given out twice. Raises StorageError."""
    block = _decode_block(value)
    first = min(block.last + 1 + SKIPPED_IDS, MAX_PRODUCER_ID - BLOCK_SIZE)
    return _encode_block(ProducerIdBlock(first, first + BLOCK_SIZE - 1), 0)


def after_restore(values: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the values to write after all data were restored to an earlier moment, while clients keep their state.

    Producers may hold ids, and epochs of their ids, that were given out after that moment. No such id is given out
    again, and a transactional id gets a new producer id with its next session: an epoch that follows from the restored
    state may be held by a producer that was fenced in the history that is lost. Raises StorageError.
    """
    block = values.get(BLOCK_KEY)
    if block is None:
        return {}  # not one producer has ever had an id
    moved = above_reserved_blocks(block)
    return {BLOCK_KEY: moved, LOWEST_KEY: str(_decode_block(moved).first).encode()}


def _encode_block(block: ProducerIdBlock, node_id: int) -> bytes:
    """Kafka's ProducerIdBlock in ZooKeeper: the bounds are strings, for readers that take JSON numbers for floats."""
    fields = {"version": 1, "broker": node_id, "block_start": str(block.first), "block_end": str(block.last)}
    return json.dumps(fields).encode()


def _decode_block(value: bytes) -> ProducerIdBlock:
    try:
        fields = parse_object(value)
        first, last = (_decode_id(fields.text(name)) for name in ("block_start", "block_end"))
        if first > last:
            raise JsonError(f"the block begins at {first} and ends at {last}")
        return ProducerIdBlock(first, last)
    except ValueError as error:
        raise StorageError(f"the metadata's {BLOCK_KEY} cannot be read: {value[:100]!r}") from error


def _decode_id(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS and int(digits) <= INT64_MAX):
        raise JsonError(f"a producer id is expected; it is {shown(digits)}")
    return int(digits)
