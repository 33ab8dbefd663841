"""Records what real clients and a real Apache Kafka say to each other, for tests/protocol/test_recorded_frames.py.

Starts Apache Kafka behind a recording proxy, drives kafka-python, confluent-kafka, aiokafka and the Java client through
it, then sends every API at every version served, and rewrites tests/frames/: one file per API, one exchange per line,
frames in hexadecimal without their length prefix.

    python -m tests.recording [--output tests/frames]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fencepost.protocol.messages.families import FAMILIES
from fencepost.soak.free_port import free_port
from fencepost.soak.kafka_jars import kafka_class_path
from scripts.apache_kafka import ROOT, ApacheKafka, fetch_jars
from tests.recording import client_metrics, python_clients, raw_requests
from tests.recording.proxy import Exchange, RecordingProxy

PROGRAMS = Path(__file__).parent
JAVA_CLIENTS = [PROGRAMS / name for name in ("JavaClient.java", "JavaShareConsumer.java")]
JAVA_STREAMS = PROGRAMS / "JavaStreams.java"
FRAME_BYTES_LIMIT = 6_000
EXCHANGES_PER_VERSION_AND_SOURCE = 6
RAW = "raw"

# The APIs whose messages the protocol package declares, by their Kafka names.
RECORDED = frozenset(
    [
        "ApiVersions",
        "Metadata",
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "DescribeConfigs",
        "DescribeCluster",
        "DescribeTopicPartitions",
        "Produce",
        "Fetch",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "WriteTxnMarkers",
        "DescribeTransactions",
        "ListTransactions",
        "DescribeProducers",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetFetch",
        "OffsetDelete",
        "DescribeGroups",
        "ListGroups",
        "DeleteGroups",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "StreamsGroupTopologyDescriptionUpdate",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "ListConfigResources",
        "DescribeLogDirs",
        "AlterReplicaLogDirs",
        "ElectLeaders",
        "AlterPartitionReassignments",
        "ListPartitionReassignments",
        "DescribeQuorum",
        "UpdateFeatures",
        "DescribeAcls",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "DescribeUserScramCredentials",
        "AlterClientQuotas",
        "DescribeClientQuotas",
        "DeleteRecords",
        "SaslHandshake",
        "SaslAuthenticate",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "UnregisterBroker",
        "UnregisterController",
        "AddRaftVoter",
        "RemoveRaftVoter",
    ]
)


def record() -> list[Exchange]:
    """Runs everything against a fresh Apache Kafka and returns the exchanges in the order in which they ended."""
    with tempfile.TemporaryDirectory(prefix="record-frames-") as directory:
        upstream_port, port = free_port(), free_port()
        properties = {"num.partitions": "1", "auto.create.topics.enable": "false"}
        kafka = ApacheKafka(Path(directory), upstream_port, advertised_port=port, properties=properties)
        with kafka, RecordingProxy(port, upstream_port) as proxy:
            bootstrap_servers = f"127.0.0.1:{port}"
            proxy.source = RAW
            failures = raw_requests.run(port)
            for failure in failures:
                print(f"  {failure}", file=sys.stderr)
            for source, scenario in python_clients.CLIENTS:
                print(f"recording {source}", flush=True)
                proxy.source = source
                scenario(bootstrap_servers)
            proxy.source = f"kafka-clients {kafka.version}"
            print(f"recording {proxy.source}", flush=True)
            jars = f"{fetch_jars(kafka.version)}/*"
            for program in JAVA_CLIENTS:
                run_java(program, jars, bootstrap_servers)
            proxy.source = f"kafka-streams {kafka.version}"
            print(f"recording {proxy.source}", flush=True)
            run_java(JAVA_STREAMS, f"{kafka_class_path('kafka-streams', kafka.version)}:{jars}", bootstrap_servers)
            exchanges = list(proxy.exchanges)
        if failures:
            raise RuntimeError(f"{len(failures)} of the raw scenarios failed")
        return exchanges


def run_java(program: Path, class_path: str, bootstrap_servers: str) -> None:
    """Runs a program of one source file to its end."""
    options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path]
    subprocess.run(["java", *options, str(program), bootstrap_servers], check=True, timeout=180)


def select(exchanges: Iterable[Exchange]) -> dict[str, list[Exchange]]:
    """The exchanges worth keeping by API name: per API, version and client the first few whose sizes differ; raw ones
    all, but once.
    """
    kept: dict[str, list[Exchange]] = defaultdict(list)
    shapes: dict[tuple[str, int, str], set[object]] = defaultdict(set)
    for exchange in exchanges:
        _, name = FAMILIES.get(exchange.api_key, ("", ""))
        request, response = exchange.request, exchange.response or b""
        if name not in RECORDED or len(request) + len(response) > FRAME_BYTES_LIMIT:
            continue
        seen = shapes[name, exchange.version, exchange.source]
        # A reply begins with its correlation id, which says nothing.
        shape = (len(request), response[4:]) if exchange.source == RAW else (len(request), len(response))
        if shape in seen or len(seen) >= EXCHANGES_PER_VERSION_AND_SOURCE:
            continue
        seen.add(shape)
        kept[name].append(exchange)
    return kept


def write(kept: dict[str, list[Exchange]], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.jsonl"):
        if old.stem not in client_metrics.FILES.values():
            old.unlink()
    for api_name, exchanges in sorted(kept.items()):
        file_name = re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()
        lines = [
            json.dumps(
                {
                    "api_key": exchange.api_key,
                    "version": exchange.version,
                    "source": exchange.source,
                    "request": exchange.request.hex(),
                    "response": None if exchange.response is None else exchange.response.hex(),
                }
            )
            for exchange in sorted(exchanges, key=lambda exchange: (exchange.version, exchange.source))
        ]
        (output / f"{file_name}.jsonl").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "tests" / "frames")
    options = parser.parse_args()
    kept = select(record())
    write(kept, options.output)
    size = sum(path.stat().st_size for path in options.output.glob("*.jsonl"))
    print(f"{sum(map(len, kept.values()))} exchanges of {len(kept)} APIs, {size / 1e6:.2f} MB, in {options.output}")
    missing = sorted(RECORDED - set(kept))
    if missing:
        print(f"no exchange recorded for {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
