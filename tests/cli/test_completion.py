"""Completion of names never disturbs a person who types: without a broker there is nothing to complete."""

from __future__ import annotations

from typing import Any

import click
import pytest

from fencepost.cli import completion

TOPIC = click.Argument(["topics"], nargs=-1)


class Admin:
    """Knows two topics of users, an internal one, and a group."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def list_topics(self) -> list[str]:
        return ["payments", "orders", "__consumer_offsets"]

    def list_groups(self) -> list[dict[str, str]]:
        return [{"group_id": "shop"}]

    def close(self) -> None:
        """Close nothing."""


def context(*taken: str) -> click.Context:
    made = click.Context(click.Command("consume"))
    made.params = {"bootstrap": "127.0.0.1:1", "topics": taken}
    return made


@pytest.fixture
def _admin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.admin.KafkaAdminClient", Admin)


@pytest.mark.usefixtures("_admin")
def test_names_that_begin_so_are_offered_in_order_and_each_once() -> None:
    assert completion.topic_names(context(), TOPIC, "") == ["orders", "payments"]
    assert completion.topic_names(context(), TOPIC, "p") == ["payments"]
    assert completion.topic_names(context("orders"), TOPIC, "") == ["payments"]
    assert completion.group_names(context(), TOPIC, "s") == ["shop"]


@pytest.mark.usefixtures("_admin")
def test_internal_topics_are_offered_to_those_who_begin_with_an_underscore() -> None:
    assert completion.topic_names(context(), TOPIC, "_") == ["__consumer_offsets"]


def test_without_a_broker_nothing_is_offered_and_no_error_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_options: Any) -> None:
        raise OSError("no broker")

    monkeypatch.setattr("kafka.admin.KafkaAdminClient", refuse)
    assert completion.topic_names(context(), TOPIC, "") == []
    assert completion.group_names(context(), TOPIC, "") == []
    assert completion.transactional_ids(context(), TOPIC, "") == []
    assert capsys.readouterr() == ("", "")
