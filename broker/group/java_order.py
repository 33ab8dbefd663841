"""The order in which the collections of Java, and one of Kafka's own, give what they hold. Pure.

Kafka keeps members, processes and protocols in these. Where several are equal, that order decides which of them leads,
wins or gets something: so it is part of what a group of clients sees.
Source: java.util.HashMap, java.util.PriorityQueue and java.lang.String.hashCode; Kafka's BaseHashTable and
SnapshottableHashTable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import unpack
from typing import Final, Generic, TypeVar

DEFAULT_CAPACITY: Final = 16
"""Of a HashMap that is not told how much it will hold."""
_GOLDEN_RATIO: Final = 0x9E3779B97F4A7C15

T = TypeVar("T")


def string_hash(text: str) -> int:
    """String.hashCode, without sign."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed


def hash_map_order(keys: Collection[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """Keys in the order in which a HashMap iterates over them that got them in the order given.

    capacity: for how many the map was made; it grows when they are more.
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
    """Keys in the order in which Kafka's TimelineHashMap iterates over them that got them in the order given.

    greatest_size: how many it has held at once; it never shrinks.
    """
    slot_bits = 1
    while (greatest_size + 1) * 3 > 4 << slot_bits:
        slot_bits += 1

    def slot(key: str) -> int:
        hashed = string_hash(key)
        signed = hashed - (hashed >> 31 << 32)
        return (signed * _GOLDEN_RATIO & 0xFFFFFFFFFFFFFFFF) >> 64 - slot_bits

    order = list(keys)
    order.reverse()  # what shares a slot is given from the last to the first
    order.sort(key=slot)
    return order


class PriorityQueue(Generic[T]):
    """Java's PriorityQueue: gives the least first. Which of equal ones comes first is a matter of its heap."""

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
        """Take the least one out. Raises IndexError when there is none."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last
        least = heap[0]
        self._sift_down(last)
        return least

    def _sift_down(self, element: T) -> None:
        """Put an element into the place of the first, or where it belongs below that."""
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
