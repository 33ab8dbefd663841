"""Keys and values of records, read by the schemas that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.schemas.registry import Registered, Registry
from fencepost.schemas.schema import Kind, SchemaError
from fencepost.schemas.wire import Named, in_front, in_header, read_indexes
from fencepost.schemas.workers import Order, Worker

REGISTRY_TIMEOUT_S: Final = 3.0
"""For all schemas of one call."""


@dataclass(frozen=True)
class Item:
    """A key or a value to read. part: `key` or `value`."""

    topic: str
    part: str
    content: bytes
    headers: Iterable[tuple[str, bytes | None]] = ()


@dataclass(frozen=True)
class Decoded:
    """A result. has_value: whether `value`, which JSON can have, was read; else `reason`, a clause, says why not.

    schema: its name, as `Avro orders-value version 3`; empty if it is not known.
    """

    has_value: bool
    value: Any = None
    schema: str = ""
    reason: str = ""
    kind: Kind | None = None


class Decoder:
    """Reads values with one registry, for one event loop."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.worker = Worker()

    async def decode(self, items: Sequence[Item], timeout_s: float = REGISTRY_TIMEOUT_S) -> list[Decoded | None]:
        """Read each item; None for one that names no schema."""
        named = [in_header(one.part, one.headers) for one in items]
        framed = [
            (header or in_front(one.content), header is not None) for one, header in zip(items, named, strict=True)
        ]
        identities = [one.identity for one, _ in framed if one is not None]
        schemas = await self.registry.find(identities, timeout_s) if identities else {}
        results: list[Decoded | None] = [None] * len(items)
        orders: list[tuple[int, str, Order]] = []
        for at, (item, (found, is_header)) in enumerate(zip(items, framed, strict=True)):
            if found is None:
                continue
            registered = schemas[found.identity]
            if isinstance(registered, SchemaError):
                results[at] = Decoded(False, reason=f"{_identity(found)}: {registered}")
                continue
            label = registered.label(f"{item.topic}-{item.part}")
            try:
                orders.append((at, label, _order(registered, found, item.content if is_header else None)))
            except SchemaError as error:
                results[at] = Decoded(False, None, label, str(error), registered.schema.kind)
        answers = await self.worker.carry_out([order for _, _, order in orders]) if orders else []
        for (at, label, order), answer in zip(orders, answers, strict=True):
            has_value = "value" in answer
            kind = order.schema.kind
            results[at] = Decoded(has_value, answer.get("value"), label, answer.get("error", ""), kind)
        return results

    async def close(self) -> None:
        await self.worker.close()
        await self.registry.close()


def _identity(named: Named) -> str:
    return f"its schema has the {'id' if isinstance(named.identity, int) else 'GUID'} {named.identity}"


def _order(registered: Registered, named: Named, bare: bytes | None) -> Order:
    """bare: the content, if a header names the schema. Raises SchemaError."""
    if registered.schema.kind is not Kind.PROTOBUF:
        return Order(registered.schema, named.rest if bare is None else bare)
    indexes, rest = read_indexes(named.rest)
    return Order(registered.schema, rest if bare is None else bare, indexes)
