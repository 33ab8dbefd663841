"""Subscribed topics of a group: which exist, which a regular expression matches, and a hash of their state. Pure.

Source: KIP-848; KIP-1101 (a hash in place of the topics); Kafka's TopicRegexResolver, Utils.computeGroupHash and
Utils.computeTopicHash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Protocol

from fencepost.broker.group.modern import every_name

try:  # as hashlib has it, which also loads OpenSSL: 4 MB
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_TOPIC = Struct(">16sii")  # topic id, count of partitions, length of the name
_HASH = Struct(">q")
MAX_COMPILED_PATTERNS = 256

Matcher = Callable[[str], object]


class Topic(Protocol):
    """Properties of a topic that the coordinator uses."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition_count(self) -> int: ...


class TopicCatalogue(Protocol):
    """All topics, as `MetadataImage` has them. `version` grows with every change."""

    @property
    def version(self) -> int: ...
    def get(self, name: str) -> Topic | None: ...
    def get_by_id(self, topic_id: bytes) -> Topic | None: ...
    def all(self) -> Iterable[Topic]: ...


def topic_ids(names: Iterable[str], topics: TopicCatalogue) -> frozenset[bytes]:
    """Return the ids of the topics that exist."""
    found = (topics.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def metadata_hash(names: Iterable[str], topics: TopicCatalogue) -> int:
    """Return a hash that changes when one of these topics is created, deleted or given partitions; 0 when none exists.

    The hash differs from Kafka's: after a move from Kafka the first heartbeat of a group begins a new epoch, which
    changes no assignment.
    """
    found = [topic for topic in map(topics.get, sorted(names)) if topic is not None]
    if not found:
        return 0
    digest = blake2b(digest_size=_HASH.size)
    for topic in found:
        name = topic.name.encode()
        digest.update(_TOPIC.pack(topic.topic_id, topic.partition_count, len(name)))
        digest.update(name)
    hashed: int = _HASH.unpack(digest.digest())[0]
    return hashed


@lru_cache(MAX_COMPILED_PATTERNS)
def compile_regex(pattern: str) -> Matcher | None:
    """Return a function for whole matches by RE2, which takes linear time; None for an invalid pattern."""
    # Imported here: few brokers need it, and a start should not pay for it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        matcher: Matcher = re2.compile(pattern, options).fullmatch
    except (re2.error, UnicodeEncodeError):
        return None
    return matcher


def matching_topics(
    pattern: str, topics: TopicCatalogue, may_describe: Callable[[str], bool] = every_name
) -> frozenset[str]:
    """Return the topic names that the pattern matches as a whole and the client may see; none for an invalid
    pattern."""
    matcher = compile_regex(pattern)
    if matcher is None:
        return frozenset()
    return frozenset(topic.name for topic in topics.all() if matcher(topic.name) and may_describe(topic.name))
