"""The words after the name of a request: partitions, records, identities and options."""

from __future__ import annotations

import re
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition

_WORD = re.compile(r'(?:[^\s"]*"[^"]*"|\S+)')
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)$")
_OFFSET = re.compile(r"(?P<partition>.+-\d+)=(?P<offset>\d+)(?:\"(?P<metadata>[^\"]*)\")?$")
_IDENTITY = re.compile(r"(?P<producer_id>-?\d+)/(?P<epoch>-?\d+)$")
_RECORD = re.compile(r"(?:(?P<key>[^\s\"=]+)=)?(?:\"(?P<value>[^\"]*)\"|(?P<null>null))$")


class ArgumentError(Exception):
    """Words that a request of this name does not take."""


class Identity(NamedTuple):
    """A producer id and an epoch, written 7/3."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} epoch {self.epoch}"


class KeyValue(NamedTuple):
    """A record as it is written: "value", key="value" or key=null."""

    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        value = "null" if self.value is None else f'"{self.value.decode()}"'
        return value if self.key is None else f"{self.key.decode()}={value}"


class Arguments:
    """Words still to be taken, from the left or by name; `finish` raises if any is left."""

    def __init__(self, text: str) -> None:
        self._words = _WORD.findall(text)
        self._text = text

    def finish(self) -> None:
        if self._words:
            raise ArgumentError(f"cannot read {' '.join(self._words)!r} in {self._text!r}")

    def flag(self, words: str) -> bool:
        """Whether these words are among them."""
        wanted = words.split()
        for start in range(len(self._words) - len(wanted) + 1):
            if self._words[start : start + len(wanted)] == wanted:
                del self._words[start : start + len(wanted)]
                return True
        return False

    def option(self, *names: str) -> str | None:
        """The word after one of the names, which may have several words."""
        for name in names:
            wanted = name.split()
            for start in range(len(self._words) - len(wanted)):
                if self._words[start : start + len(wanted)] == wanted:
                    value: str = self._words[start + len(wanted)]
                    del self._words[start : start + len(wanted) + 1]
                    return value
        return None

    def number(self, name: str, default: int) -> int:
        value = self.option(name)
        return default if value is None else int(value)

    def identity(self, name: str) -> Identity | None:
        value = self.option(name)
        if value is None:
            return None
        found = _IDENTITY.match(value)
        if found is None:
            raise ArgumentError(f"{value!r} is not a producer id and an epoch, such as 0/3")
        return Identity(int(found["producer_id"]), int(found["epoch"]))

    def version(self) -> int | None:
        """A word such as v3."""
        for position, word in enumerate(self._words):
            if re.fullmatch(r"v\d+", word):
                del self._words[position]
                return int(word[1:])
        return None

    def word(self) -> str:
        """The next word, whatever it is."""
        if not self._words:
            raise ArgumentError(f"a word is missing at the end of {self._text!r}")
        return str(self._words.pop(0))

    def words(self) -> list[str]:
        """All that are left."""
        words, self._words = self._words, []
        return words

    def partitions(self) -> list[TopicPartition]:
        """All words that are left, as partitions."""
        return [parse_partition(word) for word in self.words()]

    def records(self) -> list[tuple[TopicPartition, list[KeyValue]]]:
        """All words that are left: partitions, each with its records behind it."""
        found: list[tuple[TopicPartition, list[KeyValue]]] = []
        for word in self.words():
            record = _RECORD.match(word)
            if record is None:
                found.append((parse_partition(word), []))
            elif not found:
                raise ArgumentError(f"say to which partition {word} goes")
            else:
                key = None if record["key"] is None else record["key"].encode()
                found[-1][1].append(KeyValue(key, None if record["null"] else record["value"].encode()))
        return found

    def offsets(self) -> list[tuple[TopicPartition, int, str]]:
        """All words that are left: offsets to commit, such as in-0=5 or in-0=5"metadata"."""
        found = []
        for word in self.words():
            match = _OFFSET.match(word)
            if match is None:
                raise ArgumentError(f"{word!r} is not an offset of a partition, such as in-0=5")
            found.append((parse_partition(match["partition"]), int(match["offset"]), match["metadata"] or ""))
        return found


def parse_partition(word: str) -> TopicPartition:
    found = _PARTITION.match(word)
    if found is None:
        raise ArgumentError(f"{word!r} is not a partition, such as out-0")
    return TopicPartition(found["topic"], int(found["partition"]))


def by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order in which they were written."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
