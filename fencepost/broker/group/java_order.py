"""Iteration orders of Java's HashMap and PriorityQueue, and of Kafka's TimelineHashMap. Pure.

Kafka keeps members, processes and protocols in these. Among equals the order decides which member leads, which protocol
wins and which member gets a partition, so clients can observe it.
Source: java.util.HashMap, java.util.PriorityQueue and java.lang.String.hashCode; Kafka's BaseHashTable and
SnapshottableHashTable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import unpack
from typing import Final, Generic, TypeVar

DEFAULT_CAPACITY: Final = 16
"""Capacity of a HashMap made without one."""
_GOLDEN_RATIO: Final = 0x9E3779B97F4A7C15

T = TypeVar("T")


def string_hash(text: str) -> int:
    """Return Java's String.hashCode as an unsigned number."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed


def hash_map_order(keys: Collection[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """Return keys in the iteration order of a HashMap into which they were put in the order given.

    capacity: the initial capacity of the map, which grows with the number of keys.
    """
    bucket_count = 1
    while bucket_count < capacity:
        bucket_count *= 2
    while len(keys) > bucket_count * 3 // 4:
        bucket_count *= 2

    def bucket(key: str) -> int:
        hashed = string_hash(key)
        return (hashed ^ hashed >> 16) & (bucket_count - 1)

    return sorted(keys, key=bucket)


def timeline_hash_map_order(keys: Collection[str], greatest_size: int) -> list[str]:
    """Return keys in the iteration order of a TimelineHashMap into which they were put in the order given.

    greatest_size: the greatest number of keys that the map has held; its table never shrinks.
    """
    slot_bits = 1
    while (greatest_size + 1) * 3 > 4 << slot_bits:
        slot_bits += 1

    def slot(key: str) -> int:
        hashed = string_hash(key)
        signed = hashed - (hashed >> 31 << 32)
        return (signed * _GOLDEN_RATIO & 0xFFFFFFFFFFFFFFFF) >> 64 - slot_bits

    order = list(keys)
    order.reverse()  # keys that share a slot come out last in, first out
    order.sort(key=slot)
    return order


class PriorityQueue(Generic[T]):
    """Java's PriorityQueue: the least element comes first. Its heap decides the order of equal elements."""

    def __init__(self, key: Callable[[T], float], elements: Collection[T] = ()) -> None:
        self._key = key
        self._heap: list[T] = []
        for element in elements:
            self.add(element)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, element: T) -> None:
        key, heap = self._key, self._heap
        index = len(heap)
        heap.append(element)
        while index > 0:
            parent = (index - 1) // 2
            if key(element) >= key(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = element

    def poll(self) -> T:
        """Remove and return the least element. Raises IndexError when the queue is empty."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last
        least = heap[0]
        self._sift_down(last)
        return least

    def _sift_down(self, element: T) -> None:
        """Put an element at the root of the heap and move it down to its place."""
        key, heap = self._key, self._heap
        index = 0
        while index < len(heap) // 2:
            child = 2 * index + 1
            if child + 1 < len(heap) and key(heap[child]) > key(heap[child + 1]):
                child += 1
            if key(element) <= key(heap[child]):
                break
            heap[index] = heap[child]
            index = child
        heap[index] = element
