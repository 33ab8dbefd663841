"""The page In doubt shows decided batches that are not finished, and a person finishes them, also at Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.options import ConsoleOptions
from fencepost.soak.free_port import free_port
from fencepost.spark.names import one_off_sink
from fencepost.two_phase import Coordinator
from scripts.apache_kafka import ApacheKafka
from tests.console.running import RunningConsole, change, csrf_in, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.conditions import until
from tests.support.dead_driver import decide, prepared_tasks
from tests.support.missing_tools import require_apache_kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

JOB = one_off_sink("8cd0ef86-096d-4b7d-8237-fcb86ebd341a")
HEADING = "Decided batches that are not finished"


@pytest.fixture(scope="module", params=["fencepost", "apache kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that does not finish batches itself, with a topic for each test."""
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "fencepost":
        with BrokerProcess(directory / "data", settings={"fencepost.spark.decision.topics": ""}) as broker:
            yield broker.bootstrap
        return
    require_apache_kafka()
    with ApacheKafka(directory / "data", free_port()) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def browser(bootstrap: str) -> Iterator[httpx.Client]:
    host, port = bootstrap.split(":")
    with RunningConsole(ConsoleOptions(bootstrap=((host, int(port)),))) as running, running.browser() as client:
        yield client


def create(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


@pytest.mark.parametrize("sink", ["squares", JOB])
def test_a_person_finishes_what_a_dead_driver_has_decided(bootstrap: str, browser: httpx.Client, sink: str) -> None:
    create(bootstrap, f"out-{sink}")
    tokens = prepared_tasks(bootstrap, sink, f"out-{sink}", 3)
    assert HEADING not in text_of(browser.get("/in-doubt").text)
    decision = decide(bootstrap, sink, tokens, number=7)
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(tokens[0], commit=True)
    page = text_of(browser.get("/in-doubt").text)
    assert HEADING in page
    assert sink in page
    assert "2 of 3" in page
    answer = change(browser, "finish-batch", sink, sink=sink, decision=decision.id)
    assert answer.status_code == 200
    assert f"2 transactions of batch {decision.batch.number} of {sink} were committed." in text_of(answer.text)
    until(lambda: len(committed_records(bootstrap, f"out-{sink}")) == 3)
    until(lambda: HEADING not in text_of(browser.get("/in-doubt").text))
    form = {"csrf": csrf_in(browser.get("/topics").text), "sink": sink, "decision": decision.id, "typed_name": sink}
    late = browser.post("/change/finish-batch", data=form)
    assert (late.status_code, "o transaction of that batch" in text_of(late.text)) == (422, True)


def test_what_is_not_decided_has_no_button_and_is_not_finished(bootstrap: str, browser: httpx.Client) -> None:
    create(bootstrap, "undecided")
    (token,) = prepared_tasks(bootstrap, "cubes", "undecided", 1)
    assert HEADING not in text_of(browser.get("/in-doubt").text)
    form = {"csrf": csrf_in(browser.get("/topics").text), "sink": "cubes", "decision": "d1", "typed_name": "cubes"}
    assert browser.post("/change/finish-batch", data=form).status_code == 422
    with Coordinator(bootstrap) as coordinator:
        assert [found.token for found in coordinator.in_doubt("cubes-.*")] == [token]
        coordinator.complete(token, commit=False)


def test_a_console_that_only_reads_shows_no_button(bootstrap: str) -> None:
    create(bootstrap, "shown")
    tokens = prepared_tasks(bootstrap, "shown", "shown", 1)
    decide(bootstrap, "shown", tokens)
    host, port = bootstrap.split(":")
    options = ConsoleOptions(bootstrap=((host, int(port)),), read_only=True)
    with RunningConsole(options) as running, running.browser() as only_reads:
        page = only_reads.get("/in-doubt").text
    assert HEADING in page
    assert "finish-batch" not in page
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(tokens[0], commit=True)
