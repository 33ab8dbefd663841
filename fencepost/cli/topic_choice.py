"""The topics that names and patterns mean, each with its id: the topics that were shown are changed, and no others."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from fencepost.cli.connection import no_such_text, refusal
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.patterns import Pattern, is_pattern, matching

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

NOT_THERE: Final = 3
NAMES_PER_REQUEST: Final = 1_000
ZERO_ID: Final = bytes(16)
"""Of a topic of a broker before Kafka 2.8: it has none."""


class FoundTopic(NamedTuple):
    """A topic as it was when it was chosen."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions_count: int


class Found(NamedTuple):
    """The topics of a cluster by name, and Kafka's error codes of names that cannot be looked up."""

    topics: Mapping[str, FoundTopic]
    errors: Mapping[str, int]


class Chosen(NamedTuple):
    """The topics, and names without one, with their error codes. of_everything: a pattern that matches every name."""

    topics: list[FoundTopic]
    missing: dict[str, int]
    of_everything: str | None = None

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Name and reason of each that is missing."""
        from kafka.errors import for_code

        return [
            (name, no_such_text("topic", name, "topics") if code == NOT_THERE else refusal(for_code(code), None))
            for name, code in self.missing.items()
        ]


def shown_id(topic_id: bytes) -> str:
    """An id as Kafka's tools show it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def choose_topics(bootstrap: str, names: Sequence[str], patterns: Sequence[Pattern]) -> Chosen:
    """Ask the cluster. Raises ClickException."""
    for name in names:
        if is_pattern(name):
            # A change to several topics is asked for by an option: a shell may have left a `*` that was meant for it.
            raise click.UsageError(f"{name!r} is a pattern, not a topic's name: choose by it with --pattern {name!r}")

    async def ask(cluster: Cluster) -> Found:
        return await read_found(cluster, None if patterns else names)

    return chosen(ask_cluster(bootstrap, ask), names, patterns)


async def read_found(cluster: Cluster, names: Sequence[str] | None) -> Found:
    """The topics of these names, all of them for None. Raises ClusterError."""
    topics: dict[str, FoundTopic] = {}
    errors: dict[str, int] = {}
    for first in range(0, len(names or [""]), NAMES_PER_REQUEST):
        view = await cluster.view(None if names is None else names[first : first + NAMES_PER_REQUEST])
        for one in view.topics.values():
            if one.error:
                errors[one.name] = one.error
            else:
                topics[one.name] = FoundTopic(one.name, one.topic_id, one.is_internal, len(one.partitions))
    return Found(topics, errors)


def chosen(found: Found, names: Sequence[str], patterns: Sequence[Pattern]) -> Chosen:
    """Choose; a pattern never chooses internal topics. Raises ClickException for a pattern without a match. Pure."""
    open_to_patterns = sorted(name for name, topic in found.topics.items() if not is_hidden(topic))
    for pattern in patterns:
        if not matching(open_to_patterns, [pattern]):
            raise click.ClickException(
                f"no topic matches {pattern.text!r}; `fencepost topics list` shows which there are, and internal ones "
                "must be named"
            )
    wanted = dict.fromkeys([*names, *matching(open_to_patterns, patterns)])
    return Chosen(
        [found.topics[name] for name in wanted if name in found.topics],
        {name: found.errors.get(name, NOT_THERE) for name in wanted if name not in found.topics},
        next((pattern.text for pattern in patterns if pattern.is_of_everything), None),
    )


def is_hidden(topic: FoundTopic) -> bool:
    """Whether only its name chooses it."""
    return topic.is_internal or topic.name.startswith("__")
