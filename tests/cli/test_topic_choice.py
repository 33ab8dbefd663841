"""The topics that names and patterns mean."""

from __future__ import annotations

import click
import pytest

from fencepost.cli.patterns import Pattern
from fencepost.cli.topic_choice import Chosen, Found, FoundTopic, choose_topics, chosen, shown_id

TOPICS = {
    name: FoundTopic(name, bytes([number]) * 16, name == "__consumer_offsets", 3)
    for number, name in enumerate(["orders", "orders.eu", "payments", "_schemas", "__consumer_offsets", "__own"], 1)
}


def choose(*names: str, patterns: tuple[str, ...] = (), errors: dict[str, int] | None = None) -> Chosen:
    return chosen(Found(TOPICS, errors or {}), names, [Pattern(text) for text in patterns])


def named(found: Chosen) -> list[str]:
    return [topic.name for topic in found.topics]


def test_names_and_patterns_choose_each_topic_once_names_first() -> None:
    found = choose("payments", "orders", patterns=("orders*", "*s"))
    assert named(found) == ["payments", "orders", "_schemas", "orders.eu"]
    assert found.of_everything is None


def test_a_pattern_never_chooses_an_internal_topic_and_a_name_does() -> None:
    assert named(choose(patterns=("*",))) == ["_schemas", "orders", "orders.eu", "payments"]
    assert named(choose("__consumer_offsets")) == ["__consumer_offsets"]
    with pytest.raises(click.ClickException, match=r"no topic matches '__\*'.*internal ones must be named"):
        choose(patterns=("__*",))


@pytest.mark.parametrize("name", ["pay*", "pay?", "^pay"])
def test_a_pattern_in_place_of_a_name_is_refused_before_the_cluster_is_asked(name: str) -> None:
    with pytest.raises(click.UsageError, match=r"is a pattern, .*: choose by it with --pattern"):
        choose_topics("127.0.0.1:1", ["orders", name], [])


def test_a_pattern_of_everything_is_named() -> None:
    assert choose(patterns=("orders*", "*")).of_everything == "*"


def test_a_name_without_a_topic_has_its_reason() -> None:
    found = choose("gone", "secret", errors={"secret": 29})
    assert named(found) == []
    assert [name for name, _ in found.refused] == ["gone", "secret"]
    assert found.refused[0][1].startswith("there is no topic 'gone'; ")
    assert "TOPIC_AUTHORIZATION_FAILED (29)" in found.refused[1][1]


def test_one_pattern_without_a_match_ends_the_command() -> None:
    with pytest.raises(click.ClickException, match="no topic matches 'order'"):
        choose(patterns=("orders*", "order"))


def test_an_id_is_shown_as_other_tools_show_it() -> None:
    assert shown_id(bytes(16)) == "A" * 22
