"""How much there is of all that a cluster keeps: objects, rows, files, and entries of what brokers hold in memory.

Entries are counted by the class and attribute that hold them, whatever these are: a container that nobody thought of is
counted as well.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fencepost.broker.cluster.objects.names import flush_of
from tests.simulation.broker import SimulatedBroker
from tests.simulation.engine import SimulatedEngine

Census = Counter[str]
"""The number of each kind of thing, by its name."""

_CONTAINERS: Final = (dict, list, set, frozenset, deque, array, bytearray)
_INSIDE: Final = (*_CONTAINERS, tuple)
_PRODUCT: Final = "fencepost."
_PLAIN: Final = (str, bytes, int, float, bool, type(None), type, types.ModuleType, memoryview)


def census_of_engine(engine: SimulatedEngine) -> Census:
    """The objects that are stored, and the rows of all tables."""
    rows = engine.rows
    found: Census = Counter()
    for name in engine.objects.objects:
        found["objects of flushes" if flush_of(name) is not None else "objects of segments"] += 1
    for table in ("nodes", "fences", "topics", "deletions", "partitions", "garbage", "documents"):
        found[f"rows of {table}"] = len(getattr(rows, table))
    found["rows of tail"] = sum(len(tail) for tail in rows.tails.values())
    names = {topic.topic_id: topic.name for topic in rows.topics.values()}
    for key, segments in rows.segments.items():
        topic = re.sub(r"\d+", "N", names.get(key.topic_id, "deleted topics"))
        found["rows of segments"] += len(segments)
        found[f"segments of {topic}"] += len(segments)
        found[f"bytes of segments of {topic}"] += sum(one.size_bytes for one in segments.values())
    found["rows of tail_objects"] = len(rows.objects)
    found["bytes of documents"] = sum(len(row.value) for row in rows.documents.values())
    found["bytes of epochs"] = sum(len(row.epochs) for row in rows.partitions.values() if row.log_start_offset)
    return found


def census_of_broker(broker: SimulatedBroker) -> Census:
    """Its local files, and the entries of everything that its process has in memory."""
    found: Census = Counter({"local files": len(broker.disk.paths())})
    found["bytes of local files"] = sum(len(broker.disk.content(path)) for path in broker.disk.paths())
    return found + entries_of({"node": broker.node})


def census_of_modules() -> Census:
    """The entries of what modules of the product hold, and of their caches."""
    found: Census = Counter()
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(_PRODUCT):
            continue
        for attribute, value in vars(module).items():
            if isinstance(value, _CONTAINERS) and not attribute.startswith("__"):
                found[f"{name}.{attribute}"] = len(value)
            elif isinstance(value, functools._lru_cache_wrapper) and value.cache_info().maxsize is None:
                found[f"{name}.{attribute}"] = value.cache_info().currsize
    return found


def entries_of(roots: Mapping[str, object]) -> Census:
    """The entries of all containers that can be reached, by the class and attribute that they belong to."""
    found: Census = Counter()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = list(roots.items())
    while waiting:
        label, value = waiting.pop()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            found[label] += len(value)
        if isinstance(value, _INSIDE):
            waiting += ((f"{label}[]", inner) for inner in _inside(value))
        else:
            waiting += _attributes(value)
    return found


def grown(
    before: Sequence[Census], after: Sequence[Census], *, share: float = 0.25, least: int = 10
) -> dict[str, tuple[int, int]]:
    """What there is more of than before: the most of the earlier counts, and the least of the later ones.

    share, least: by how much it may be more.
    """
    names = {name for census in after for name in census}
    found = {name: (max(one[name] for one in before), min(one[name] for one in after)) for name in sorted(names)}
    return {name: (early, late) for name, (early, late) in found.items() if late > early * (1 + share) + least}


def _inside(container: Any) -> Iterator[object]:
    if isinstance(container, array | bytearray):
        return
    if isinstance(container, dict):
        yield from list(container.keys())
        yield from list(container.values())
    else:
        yield from list(container)


def _attributes(value: Any) -> Iterator[tuple[str, object]]:
    """What an object of the product, or a callback, refers to. Others are not followed: loops, and the world."""
    if isinstance(value, types.MethodType):
        yield "method", value.__self__
    elif isinstance(value, functools.partial):
        yield "partial", value.func
        yield "partial()", value.args
        yield "partial()", value.keywords
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield f"{value.__qualname__}()", cell.cell_contents
            except ValueError:
                continue  # nothing is in it yet
    else:
        kind = type(value)
        if not kind.__module__.startswith(_PRODUCT):
            return
        for attribute in _names(value):
            inner = getattr(value, attribute, None)
            yield f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}.{attribute}", inner


def _names(value: object) -> Iterator[str]:
    yield from list(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__"):
                is_private = name.startswith("__") and not name.endswith("__")
                yield f"_{kind.__name__.lstrip('_')}{name}" if is_private else name
