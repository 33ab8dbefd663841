"""`fencepost apis`: brokers of every age are shown, and differences between the brokers of a cluster are named."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.apis import api_name, grouped
from fencepost.cli.commands import fencepost
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from fencepost.protocol.schema import encode

UNKNOWN = 1_234
Answer = Callable[[int, int], bytes | None]
"""The body of the answer to a request of this API and version; None to close the connection."""


class Fake:
    """A broker that serves these APIs, by key their highest version. named: by node id the ports that it names."""

    def __init__(self, apis: dict[int, int], level: int = 2) -> None:
        self.apis = apis
        self.level = level
        self.named: dict[int, int] = {}
        self.asked: list[tuple[int, int]] = []

    def answer(self, key: int, version: int) -> bytes | None:
        self.asked.append((key, version))
        if key == ApiKey.METADATA:
            brokers = [MetadataResponseBroker(node, "127.0.0.1", port) for node, port in self.named.items()]
            return bytes(encode(MetadataResponse(brokers=brokers), version)) if brokers else None
        served = [ApiVersion(api, 0, highest) for api, highest in self.apis.items()]
        if version > self.apis[ApiKey.API_VERSIONS]:
            return bytes(encode(ApiVersionsResponse(error_code=35, api_keys=served), 0))
        supported = [SupportedFeatureKey("transaction.version", 0, 2)] if version >= 3 else []
        finalized = [FinalizedFeatureKey("transaction.version", self.level, 0)] if version >= 3 else []
        reply = ApiVersionsResponse(0, served, 0, supported, 7 if version >= 3 else -1, finalized)
        return bytes(encode(reply, version))


@contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """Serve requests on a port of this machine."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(length := self.rfile.read(4)) == 4:
                key, version, correlation = struct.unpack_from(">hhi", self.rfile.read(*struct.unpack(">i", length)))
                body = answer(key, version)
                if body is None:
                    return
                self.wfile.write(struct.pack(">ii", len(body) + 4, correlation) + body)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def cluster(*brokers: Fake) -> Iterator[str]:
    """Serve these brokers, which name each other by node ids from 1; the address of the first."""
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(broker.answer)) for broker in brokers]
        for broker in brokers:
            broker.named = dict(enumerate(ports, 1))
        yield f"127.0.0.1:{ports[0]}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(fencepost, ["apis", *arguments], prog_name="fencepost")


def shown(address: str) -> Any:
    result = run("--bootstrap", address, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("highest", [0, 1, 2, 3, 4, 5, 9])
def test_brokers_of_every_age_are_shown(highest: int) -> None:
    fake = Fake({ApiKey.PRODUCE: 7, ApiKey.METADATA: 8, ApiKey.API_VERSIONS: highest, 4: 1, UNKNOWN: 3})
    with cluster(fake) as address:
        document = shown(address)
    assert [(row["key"], row["name"]) for row in document["apis"]] == [
        (0, "Produce"),
        (3, "Metadata"),
        (4, "LeaderAndIsr"),
        (18, "ApiVersions"),
        (UNKNOWN, None),
    ]
    assert document["apis"][-1]["versions"] == [{"min_version": 0, "max_version": 3, "brokers": [1]}]
    assert max(version for key, version in fake.asked if key == ApiKey.API_VERSIONS) == min(highest, 5)
    has_features = highest >= 3
    assert [row["name"] for row in document["features"]] == (["transaction.version"] if has_features else [])
    assert document["finalized_features_epoch"] == (7 if has_features else None)


def test_an_unknown_api_is_shown_by_its_number() -> None:
    with cluster(Fake({ApiKey.METADATA: 8, ApiKey.API_VERSIONS: 3, UNKNOWN: 3})) as address:
        lines = [line.split() for line in run("-b", address).stdout.splitlines()]
    assert ["1234", "(unknown)", "0", "to", "3"] in lines
    assert ["transaction.version", "0", "to", "2", "0", "to", "2"] in lines


def test_differences_between_brokers_are_named() -> None:
    old = Fake({ApiKey.METADATA: 8, ApiKey.API_VERSIONS: 3}, level=1)
    new = [Fake({ApiKey.METADATA: 9, ApiKey.API_VERSIONS: 3, ApiKey.SHARE_FETCH: 1}) for _ in range(2)]
    with cluster(old, *new) as address:
        document = shown(address)
        table = run("-b", address).stdout
    rows = {row["name"]: row for row in document["apis"]}
    assert rows["ShareFetch"]["versions"] == [
        {"min_version": None, "max_version": None, "brokers": [1]},
        {"min_version": 0, "max_version": 1, "brokers": [2, 3]},
    ]
    assert rows["ApiVersions"]["versions"] == [{"min_version": 0, "max_version": 3, "brokers": [1, 2, 3]}]
    assert "0 to 8 (broker 1), 0 to 9 (brokers 2, 3)" in table
    assert "none (broker 1), 0 to 1 (brokers 2, 3)" in table
    assert "0 to 1 (broker 1), 0 to 2 (brokers 2, 3)" in table


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_shown() -> None:
    fake = Fake({ApiKey.METADATA: 8, ApiKey.API_VERSIONS: 3})
    with cluster(fake) as address:
        fake.named[2] = 1
        result = run("-b", address, "--json")
    assert result.exit_code == 1
    assert [(row["broker"], row["apis"]) for row in json.loads(result.stdout)["brokers"]] == [(1, 2), (2, None)]
    assert result.stderr == "Error: 1 of 2 brokers did not answer: broker 2 at 127.0.0.1:1 (connection refused)\n"


def test_without_a_log_in_the_broker_that_was_asked_is_shown() -> None:
    with serving(Fake({ApiKey.METADATA: 8, ApiKey.API_VERSIONS: 3}).answer) as port:
        result = run("-b", f"127.0.0.1:{port}", "--json")
    assert result.exit_code == 0
    assert [row["broker"] for row in json.loads(result.stdout)["brokers"]] == [None]
    assert result.stderr.startswith(f"only the broker of 127.0.0.1:{port} is shown: ")


def test_what_is_no_broker_is_said_in_words() -> None:
    with serving(lambda _key, _version: b"HTTP/1.1 400 Bad Request") as port:
        result = run("-b", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert "does not speak Kafka's protocol" in result.stderr
    assert "Traceback" not in result.output


def test_each_api_has_kafkas_name() -> None:
    assert api_name(ApiKey.INCREMENTAL_ALTER_CONFIGS) == "IncrementalAlterConfigs"
    assert api_name(ApiKey.ADD_PARTITIONS_TO_TXN) == "AddPartitionsToTxn"
    assert api_name(-1) is None


def test_brokers_that_agree_are_one_group() -> None:
    assert grouped([(0, 1), (0, 1)], [1, 2]) == [{"min_version": 0, "max_version": 1, "brokers": [1, 2]}]
