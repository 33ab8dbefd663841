"""Completion of names never disturbs a person who types: without a broker there is nothing to complete."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from fencepost.cli import completion
from fencepost.cli.commands import fencepost
from fencepost.cli.profile_file import Profiles, change_profiles
from fencepost.client.errors import UnreachableError
from fencepost.client.plans import Address
from fencepost.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from fencepost.protocol.messages.group_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest

BOUND_S = 10.0
"""More than the second that a completion may take, for a busy machine; less than any time-out of a client."""
TOPICS = ["payments", "orders", "__consumer_offsets", "$(reboot)", "a b", "-x", "`id`", "überweisungen"]
DEAD = Address("gone", 1)


class Cluster:
    """Knows topics, a user, and groups at the first of two brokers; the second is dead."""

    def __init__(self, bootstrap: Any, options: Any) -> None:
        asked.append((str(bootstrap[0]), options.credentials))

    def close(self) -> None:
        """Close nothing."""

    def send(self, request: Any, address: Address | None = None) -> Any:
        if address == DEAD:
            raise UnreachableError("gone")
        match request:
            case MetadataRequest():
                brokers = [MetadataResponseBroker(1, "here", 1), MetadataResponseBroker(2, *DEAD)]
                topics = [MetadataResponseTopic(name=name) for name in TOPICS]
                return MetadataResponse(brokers=brokers, topics=topics if request.topics is None else [])
            case ListGroupsRequest():
                return ListGroupsResponse(groups=[ListedGroup("shop"), ListedGroup("two\nlines")])
            case DescribeUserScramCredentialsRequest():
                return DescribeUserScramCredentialsResponse(results=[DescribeUserScramCredentialsResult("alice")])
            case DescribeConfigsRequest():
                kind = request.resources[0].resource_type
                name = {2: "retention.ms", 4: "log.cleaner.threads"}[kind]
                return DescribeConfigsResponse(
                    results=[DescribeConfigsResult(configs=[DescribeConfigsResourceResult(name)])]
                )
            case ListTransactionsRequest():
                raise RuntimeError("unexpected")
        return None


asked: list[tuple[str, Any]] = []
"""The address and the log-in of each client that was made."""


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("FENCEPOST_BOOTSTRAP", "FENCEPOST_COMMAND_CONFIG", "FENCEPOST_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    asked.clear()


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.client.blocking.BlockingCluster", Cluster)


def offered(line: str, incomplete: str = "") -> list[str]:
    """The names that a shell offers behind a line."""
    found = ShellComplete(fencepost, {}, "fencepost", "_FENCEPOST_COMPLETE").get_completions(line.split(), incomplete)
    return [item.value for item in found]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize(
    ("line", "incomplete", "names"),
    [
        ("topics describe", "", ["orders", "payments", "überweisungen"]),
        ("topics describe", "p", ["payments"]),
        ("topics delete orders", "", ["payments", "überweisungen"]),
        ("topics describe", "_", ["__consumer_offsets"]),
        ("groups describe", "s", ["shop"]),
        ("consume orders --group", "", ["shop"]),
        ("users remove", "a", ["alice"]),
        ("topics configs orders --set", "ret", ["retention.ms="]),
        ("topics configs orders --delete", "", ["retention.ms"]),
        ("topics create new --config", "", ["retention.ms="]),
        ("configs broker", "", ["1", "2"]),
        ("configs topic", "o", ["orders"]),
        ("configs broker 1 --set", "", ["log.cleaner.threads="]),
        ("acls add --topic", "o", ["orders"]),
    ],
)
def test_names_that_begin_so_are_offered_in_order(line: str, incomplete: str, names: list[str]) -> None:
    assert offered(line, incomplete) == names


@pytest.mark.usefixtures("_cluster")
def test_a_name_that_a_shell_would_run_is_never_offered() -> None:
    assert not set(offered("topics describe")) & {"$(reboot)", "`id`", "a b", "-x"}
    assert offered("groups describe", "t") == []


@pytest.mark.parametrize("character", list("$`\"'\\;&|<>(){}[]*?!# \t\n=~:\x00\u202e"))
def test_no_character_that_a_shell_treats_specially_is_plain(character: str) -> None:
    assert not completion.is_plain(f"a{character}b")


@pytest.mark.usefixtures("_cluster")
def test_the_number_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.test_completion.TOPICS", [f"t{number}" for number in range(5_000)])
    assert len(offered("topics describe")) == completion.MOST_NAMES


@pytest.mark.usefixtures("_cluster")
def test_the_broker_and_the_profile_of_the_line_are_asked() -> None:
    log_in = {
        "bootstrap.servers": "prod:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "secret",
    }
    change_profiles(lambda _: (Profiles(None, {"prod": log_in}), None))
    offered("topics describe -b other:1")
    offered("topics describe --profile prod")
    (first, nobody), (second, bob) = asked
    assert (first, nobody, second, bob.user) == ("other:1", None, "prod:9092", "bob")
    assert offered("topics describe --profile", "p") == ["prod"]
    assert offered("profile use", "") == ["prod"]


# Nothing disturbs


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize(
    "line",
    [
        "transactions describe",  # an unexpected exception
        "topics describe --profile nobody",
        "topics describe -b nowhere",
        "topics describe --command-config /no/such/file",
        "topics describe -X security.protocol=SSL -X ssl.truststore.location=/no/such/file",
        "topics describe -X security.protocol",
        "configs broker 7 --set",
    ],
)
def test_whatever_is_wrong_nothing_is_offered_and_nothing_said(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert offered(line) == []
    assert capfd.readouterr() == ("", "")


def test_without_a_broker_nothing_is_offered_and_no_error_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    for line in ("topics describe", "groups describe", "transactions describe", "users remove", "configs broker"):
        assert offered(f"{line} -b 127.0.0.1:1") == []
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def in_time(do: Callable[[], Any]) -> Any:
    started_s = time.monotonic()
    result = do()
    assert time.monotonic() - started_s < BOUND_S
    return result


def test_a_broker_that_does_not_answer_is_given_up(silent: int) -> None:
    assert in_time(lambda: offered(f"topics describe -b 127.0.0.1:{silent}")) == []


def test_a_name_that_cannot_be_resolved_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: is_over.wait(60))
    assert in_time(lambda: offered("topics describe -b slow.example:9092")) == []
    is_over.set()


def test_names_that_came_before_the_time_was_over_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def ask(_cluster: Any) -> Iterator[str]:
        yield "early"
        is_over.wait(60)
        yield "late"

    monkeypatch.setattr("fencepost.client.blocking.BlockingCluster", Cluster)
    monkeypatch.setattr(completion, "_topics", ask)
    assert offered("topics describe") == ["early"]
    is_over.set()


def test_a_context_without_an_address_offers_nothing() -> None:
    context = click.Context(click.Command("consume"))
    assert completion.topic_names(context, click.Argument(["topics"]), "") == []
