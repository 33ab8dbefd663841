"""Every figure of `scripts/bench.py` runs from end to end on a broker process, with sizes that take seconds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fencepost.protocol.record_batch import read_header
from scripts.benchmarks import idempotence
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.client import CLIENT_ID, Client, connect, fetch_request, produce_request, require_success
from scripts.benchmarks.command import main
from scripts.benchmarks.fencepost import FencepostSubject
from scripts.benchmarks.figures import DURABLE_REFERENCE, REFERENCE
from scripts.benchmarks.java_clients import are_here
from scripts.benchmarks.measuring import topic_of
from scripts.benchmarks.quotas import UNREACHABLE_BYTES_PER_S, producer_byte_rate
from scripts.benchmarks.table import FIGURES
from scripts.benchmarks.warm_up import STEADY_COUNT, Work, warm_up

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name.startswith("spark") else name for name in FIGURES]
)
def test_the_figure_is_measured(name: str, tmp_path: Path) -> None:
    if FIGURES[name].needs_java and not are_here():
        pytest.skip("its clients need java and javac")
    output = tmp_path / "results.json"
    arguments = ["--small", "--alone", "--rounds", "1", "--only", name, "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--json", str(output), "--plot", str(tmp_path / "pictures")]) == 0
    (written,) = json.loads(output.read_text())["figures"].items()
    assert written[0] == name
    assert written[1]["machine"]["cores"] >= 1
    results, figure = written[1]["results"], FIGURES[name]
    assert {result["subject"] for result in results} == set(figure.subjects) - {REFERENCE, DURABLE_REFERENCE}
    assert all(len(result["values"]) == 1 and result["unit"] for result in results)
    measured = {(result["quantity"], result["case"]) for result in results}
    wanted = {(target.quantity, "") for target in figure.targets}
    wanted |= {(target.quantity, target.case) for target in figure.ratio_targets}
    assert all(any(quantity == one[0] and case in ("", one[1]) for one in measured) for quantity, case in wanted)
    assert (tmp_path / "pictures" / f"{name}.svg").stat().st_size > 1_000


def test_a_broker_that_runs_already_is_measured_like_any_other(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    data_directory = tmp_path / "data"
    data_directory.mkdir()
    broker = FencepostSubject().launch(data_directory, {})
    try:
        connect(broker).close()
        peer = "{}:{}".format(*broker.address)
        only = ["--only", "loops", "--only", "footprint"]
        assert main(["--small", "--alone", "--rounds", "1", *only, "--peer", peer, "--json", str(output)]) == 0
        broker.require_running()
    finally:
        broker.kill()
    figures = json.loads(output.read_text())["figures"]
    assert {ratio["reference"] for ratio in figures["loops"]["ratios"]} == {peer}
    assert "CPU" in figures["loops"]["ratios"][-1]["quantity"]
    assert peer not in {result["subject"] for result in figures["footprint"]["results"]}


def test_a_quota_is_in_force_for_as_long_as_it_is_measured(tmp_path: Path) -> None:
    batch = BatchTemplate(record_bytes=10_000, records_count=10).batch()
    broker = FencepostSubject().launch(tmp_path / "data", {})
    try:
        connect(broker).close()
        with topic_of(broker, "measured", 1) as topic, Client(broker.address) as client:
            produce = produce_request(topic, [(0, batch)])
            assert not require_success(client.call(produce)).throttle_time_ms
            with producer_byte_rate(broker, CLIENT_ID, UNREACHABLE_BYTES_PER_S):
                assert not require_success(client.call(produce)).throttle_time_ms
            with producer_byte_rate(broker, CLIENT_ID, 1_000.0):
                assert require_success(client.call(produce)).throttle_time_ms > 0
            with producer_byte_rate(broker, "another", 1_000.0), Client(broker.address) as unpaused:
                assert not require_success(unpaused.call(produce)).throttle_time_ms
    finally:
        broker.kill()


@pytest.mark.parametrize("client", [idempotence.LIBRDKAFKA, idempotence.BARE])
def test_an_idempotent_producer_writes_with_a_producer_id(client: str, tmp_path: Path) -> None:
    broker = FencepostSubject().launch(tmp_path / "data", {})
    try:
        connect(broker).close()
        with topic_of(broker, "measured", 1) as topic, Client(broker.address) as reader:
            idempotence.produce(broker, topic, idempotence.Case(client, 1, 1), records=20)
            reply = require_success(reader.call(fetch_request(topic, 0, 2**20)))
            header = read_header(memoryview(reply.responses[0].partitions[0].records))
            assert (header.producer_id >= 0, header.base_sequence) == (True, 0)
    finally:
        broker.kill()


def test_a_broker_is_warmed_until_its_figures_settle(tmp_path: Path) -> None:
    said: list[str] = []
    broker = FencepostSubject().launch(tmp_path / "data", {})
    try:
        connect(broker).close()
        passes_count = warm_up(broker, said.append, Work(records=200, transactions_s=0.01))
    finally:
        broker.kill()
    assert 2 * STEADY_COUNT <= passes_count == len(said)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP], ids=["terminated", "terminal closed"])
def test_a_benchmark_that_is_ended_leaves_nothing_behind(ending: signal.Signals, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, str(ROOT / "scripts" / "bench.py"), "--small", "--alone", "--only", "loops"]
    bench = subprocess.Popen(
        [*command, "--rounds", "1000", "--cache", str(cache)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # These tests may run under nohup.
        preexec_fn=lambda: signal.signal(ending, signal.SIG_DFL),
    )
    try:
        assert bench.stderr is not None
        for line in bench.stderr:
            if "round 3 of" in line:
                break
        children = psutil.Process(bench.pid).children(recursive=True)
        assert children
        bench.send_signal(ending)
        assert bench.wait(timeout=60) == 128 + ending
    finally:
        bench.kill()
        bench.communicate()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert not list(cache.glob("measuring-*"))
    assert not list(cache.rglob("round-*"))
