"""Asks a broker for its answers about client metrics (KIP-714), in words that do not depend on ids or times.

    .venv/bin/python -m tests.recording.client_metrics    # asks Apache Kafka, rewrites its files in tests/frames/

Apache Kafka serves the two APIs only with a plugin, so this recording starts a broker of its own. Needs javac.
tests/integration/test_client_metrics.py compares a broker process of ours with the recorded answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from fencepost.client.blocking import BlockingConnection
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ROOT, ApacheKafka, fetch_jars
from tests.recording.proxy import Exchange, RecordingProxy
from tests.support.otlp import gauge, metrics_data, point

FRAMES: Final = ROOT / "tests" / "frames"
ANSWERS: Final = FRAMES / "client_metrics_answers.json"
FILES: Final = {71: "get_telemetry_subscriptions", 72: "push_telemetry"}
RECEIVER: Final = Path(__file__).parent / "TelemetryReceiver.java"
CLIENT_METRICS: Final = 16
SET, DELETE = 0, 1
NEW, RESERVED = bytes(16), bytes(15) + b"\x01"
INTERVAL_MS: Final = 60_000
"""Longer than any machine needs for a few requests: no answer depends on the time between them."""
TELEMETRY_MAX_BYTES: Final = 2_000
"""Small, so that the frames of pushes that are too large are small."""
LONGEST_WAIT_S: Final = 60
CONTENT: Final = metrics_data(gauge("org.apache.kafka.g", point(1.0)))

CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {"nope": "a"},
    {"interval.ms": "99"},
    {"interval.ms": "3600001"},
    {"interval.ms": "x"},
    {"interval.ms": ""},
    {"match": "nobody=a"},
    {"match": "client_id"},
    {"match": "client_id=a=b"},
    {"match": "client_id=a="},
    {"match": "client_id="},
    {"match": "client_id=["},
    {"match": "client_id=a,client_id=b"},
    {"match": ""},
    {"metrics": "a,a"},
    {"metrics": ""},
    {"metrics": "a,,b"},
    {"metrics": "a b!, é"},
    {},
)
"""Valid and invalid configs of a subscription."""


class Asker:
    """One client, and the answers that it has had: a line for each request."""

    def __init__(self, port: int) -> None:
        self._client = BlockingConnection(Address("127.0.0.1", port), ClientOptions(client_id="asker"))
        self.answers: list[str] = []

    def close(self) -> None:
        self._client.close()

    def _note(self, label: str, error: int, *more: object) -> None:
        self.answers.append(" ".join(map(str, (label, ErrorCode(error).name, *more))))

    def alter(self, label: str, name: str, configs: dict[str, str | None], *, validate_only: bool = False) -> None:
        changes = [
            IncrementalAlterableConfig(key, SET if value is not None else DELETE, value)
            for key, value in configs.items()
        ]
        resource = IncrementalAlterConfigsResource(CLIENT_METRICS, name, changes)
        (found,) = self._client.send(IncrementalAlterConfigsRequest([resource], validate_only)).responses
        self._note(f"alter {label}", found.error_code)

    def replace(self, name: str, configs: dict[str, str]) -> None:
        values = [AlterableConfig(key, value) for key, value in configs.items()]
        (found,) = self._client.send(
            AlterConfigsRequest([AlterConfigsResource(CLIENT_METRICS, name, values)])
        ).responses
        self._note("replace", found.error_code)

    def describe(self, name: str) -> None:
        request = DescribeConfigsRequest([DescribeConfigsResource(CLIENT_METRICS, name, None)], include_synonyms=True)
        (found,) = self._client.send(request).results
        rows = sorted(
            (one.name, one.value, one.config_source, [(each.value, each.source) for each in one.synonyms])
            for one in found.configs
        )
        self._note(f"describe {name!r}", found.error_code, rows)

    def listed(self) -> None:
        found = self._client.send(ListConfigResourcesRequest([CLIENT_METRICS]))
        self._note("list", found.error_code, sorted(one.resource_name for one in found.config_resources))

    def asks(self, instance: bytes = NEW) -> GetTelemetrySubscriptionsResponse:
        found: GetTelemetrySubscriptionsResponse = self._client.send(GetTelemetrySubscriptionsRequest(instance))
        return found

    def get(self, label: str, instance: bytes = NEW) -> GetTelemetrySubscriptionsResponse:
        found = self.asks(instance)
        self._note(
            f"get {label}",
            found.error_code,
            found.client_instance_id == instance,
            found.client_instance_id == NEW,
            list(found.accepted_compression_types),
            found.push_interval_ms,
            found.telemetry_max_bytes,
            found.delta_temporality,
            list(found.requested_metrics),
        )
        return found

    def push(
        self,
        label: str,
        instance: bytes,
        subscription: int,
        content: bytes = b"",
        codec: int = 0,
        *,
        is_last: bool = False,
    ) -> None:
        push = PushTelemetryRequest(instance, subscription, is_last, codec, content)
        self._note(f"push {label}", self._client.send(push).error_code)

    def subscribed(self, metrics: list[str], interval_ms: int) -> None:
        """Wait until the broker asks new clients for these metrics."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while True:
            found = self.asks()
            if (list(found.requested_metrics), found.push_interval_ms) == (metrics, interval_ms):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


def answers_of(port: int) -> list[str]:
    """The answers of a broker with `TELEMETRY_MAX_BYTES`, as lines."""
    asker = Asker(port)
    try:
        _ask_for_configs(asker)
        _ask_and_push(asker)
    finally:
        asker.close()
    return asker.answers


def _ask_for_configs(asker: Asker) -> None:
    asker.alter("without a name", "", {"metrics": "a"})
    for configs in CONFIGS:
        asker.alter(json.dumps(configs), "tried", dict(configs), validate_only=True)
    asker.alter("an absent one", "absent", {"metrics": None})
    asker.alter("a new one", "shop", {"metrics": "org.b,org.a"})
    asker.subscribed(["org.a", "org.b"], 300_000)
    for name in ("shop", "absent", ""):
        asker.describe(name)
    asker.replace("shop", {"metrics": "org.x", "interval.ms": str(INTERVAL_MS)})
    asker.subscribed(["org.x"], INTERVAL_MS)
    asker.listed()


def _ask_and_push(asker: Asker) -> None:
    known = asker.get("new")
    key, subscription = known.client_instance_id, known.subscription_id
    asker.get("too early", key)
    for label, reserved in (("zero", NEW), ("reserved", RESERVED)):
        asker.push(f"with the {label} id", reserved, subscription)
    asker.push("at once", key, subscription, CONTENT)
    asker.push("too early", key, subscription, CONTENT)
    asker.push("the last", key, subscription, CONTENT, is_last=True)
    asker.push("the last again", key, subscription, CONTENT, is_last=True)
    asker.push("after the last", key, subscription, CONTENT)
    for label, shift, content, codec in (
        ("another subscription", 1, CONTENT, 0),
        ("an unknown codec", 0, CONTENT, 9),
        ("a negative codec", 0, CONTENT, -1),
        ("a byte too many", 0, bytes(TELEMETRY_MAX_BYTES + 1), 0),
        ("a bomb", 0, compress(Codec.ZSTD, bytes(TELEMETRY_MAX_BYTES + 1)), Codec.ZSTD),
        ("no zstd", 0, b"garbage", Codec.ZSTD),
        ("nothing", 0, b"", Codec.ZSTD),
        *((f"in {codec.name}", 0, compress(codec, CONTENT), codec) for codec in Codec),
    ):
        known = asker.asks()
        key = known.client_instance_id
        asker.push(label, key, known.subscription_id ^ shift, content, codec)
        asker.get(f"after {label}", key)
        asker.get(f"twice after {label}", key)
    unasked = bytes(range(16))
    asker.push("unasked", unasked, 5)
    known = asker.get("then", unasked)
    asker.push("then", unasked, known.subscription_id)
    asker.alter("a known one", "shop", {"interval.ms": "30000"})
    asker.subscribed(["org.x"], 30_000)
    asker.push("after the change", unasked, known.subscription_id)
    asker.get("after the change", unasked)
    asker.alter("away", "shop", {"metrics": None, "interval.ms": None})
    asker.subscribed([], 300_000)
    asker.describe("shop")
    asker.listed()


def record() -> tuple[list[str], list[Exchange]]:
    """The answers of Apache Kafka, and the exchanges of its two APIs."""
    jars = fetch_jars()
    with tempfile.TemporaryDirectory(prefix="record-client-metrics-") as name:
        directory = Path(name)
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", name, str(RECEIVER)], check=True, timeout=120)
        upstream_port, port = free_port(), free_port()
        properties = {
            "metric.reporters": "TelemetryReceiver",
            "telemetry.max.bytes": str(TELEMETRY_MAX_BYTES),
        }
        kafka = _WithReceiver(directory / "data", upstream_port, advertised_port=port, properties=properties)
        with kafka, RecordingProxy(port, upstream_port) as proxy:
            proxy.source = "raw"
            answers = answers_of(port)
            exchanges = [one for one in proxy.exchanges if one.api_key in FILES]
    return answers, exchanges


class _WithReceiver(ApacheKafka):
    """A node with the receiver, which lies beside its data directory, on its class path."""

    def prepare(self) -> list[str]:
        command = super().prepare()
        place = command.index("-cp") + 1
        command[place] = os.pathsep.join((command[place], str(self.data_directory.parent)))
        return command


def main() -> None:
    answers, exchanges = record()
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for api_key, name in FILES.items():
        rows: dict[tuple[int, bytes], str] = {}
        for one in exchanges:
            assert one.response is not None
            row = {
                "api_key": api_key,
                "version": one.version,
                "source": one.source,
                "request": one.request.hex(),
                "response": one.response.hex(),
            }
            if one.api_key == api_key:
                # A reply begins with its correlation id, which says nothing; one of each length is enough.
                rows.setdefault((len(one.request), one.response[4:11] + bytes(len(one.response))), json.dumps(row))
        (FRAMES / f"{name}.jsonl").write_text("\n".join(rows.values()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
