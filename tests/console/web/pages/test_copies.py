"""Copies of records over HTTP: the preview, the job behind the page, its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console import copying
from fencepost.console.roles import Role
from fencepost.console.web.audit import open_audit_log
from fencepost.console.web.roles import needed_role
from tests.console.running import RunningConsole, change, csrf_in, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with RunningConsole(options_for(broker)) as running:
        yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as client:
        yield client


@pytest.fixture
def audit_lines(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    open_audit_log(str(path))
    return path


def create(broker: BrokerProcess, *names: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(60)


def write(broker: BrokerProcess, topic: str, count: int = 300) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, json.dumps({"id": number}), f"k{number}", partition=number % 3)
    assert producer.flush(60) == 0


FORM = {"by": "same", "keep_time": "yes", "transactions": "yes"}


def ended(browser: httpx.Client) -> str:
    """Wait for the end of the newest copy, and return the text of its page."""
    until(lambda: not get_json(browser, "/copies")["jobs"][0]["is_running"], timeout_s=60)
    return text_of(browser.get(f"/copies/{get_json(browser, '/copies')['jobs'][0]['id']}").text)


def test_a_copy_is_shown_first_and_runs_behind_its_page(
    broker: BrokerProcess, browser: httpx.Client, audit_lines: Path
) -> None:
    create(broker, "from-a", "to-a")
    write(broker, "from-a")
    form = browser.get("/topics/from-a/copy?field=id&op=%3E&operand=99&partition=0-1&order=newest").text
    assert "200 offsets of 2 partitions; filter: id > '99'" in text_of(form)
    hidden = dict(re.findall(r'type="hidden" name="([a-z_]+)" value="([^"]*)"', form))
    hidden = {name: value.replace("&gt;", ">") for name, value in hidden.items()}
    shown = browser.post("/change/copy-records", data={**hidden, **FORM, "target": "to-a"})
    preview = text_of(shown.text)
    assert re.search(r"Up to 200 records of from-a are read, about [0-9.]+ KiB; at most as much is written", preview)
    assert "Only committed records are copied" in preview
    assert "one transaction" in preview
    assert get_json(browser, "/copies")["jobs"] == []
    change(browser, "copy-records", "to-a", **{k: v for k, v in hidden.items() if k != "csrf"}, **FORM, target="to-a")
    page = ended(browser)
    assert "All of the range was copied. 133 records were written" in page
    rows = get_json(browser, "/topics/to-a/messages?stands=committed&order=oldest")["rows"]
    assert len(rows) == 50
    assert all(json.loads(one["value"])["id"] > 99 for one in rows)
    lines = [json.loads(line) for line in audit_lines.read_text().splitlines()]
    assert [one["outcome"] for one in lines if one["change"] == "copy-records"] == ["begun", "done", "done"]
    assert "133 written" in lines[-1]["details"]


def test_the_range_is_that_of_the_preview(broker: BrokerProcess, browser: httpx.Client) -> None:
    create(broker, "from-b", "to-b")
    write(broker, "from-b", 30)
    form = {"csrf": csrf_in(browser.get("/topics").text), "topic": "from-b", "target": "to-b", **FORM}
    shown = browser.post("/change/copy-records", data=form).text
    write(broker, "from-b", 30)
    fields = dict(re.findall(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)"', shown))
    done = browser.post("/change/copy-records", data={**fields, "typed_name": "to-b", "reason": "a test"})
    assert done.status_code == 200
    assert "30 records were written" in ended(browser)


def test_a_target_that_was_made_again_since_the_preview_is_refused(
    broker: BrokerProcess, browser: httpx.Client
) -> None:
    create(broker, "from-c", "to-c")
    write(broker, "from-c", 30)
    form = {"csrf": csrf_in(browser.get("/topics").text), "topic": "from-c", "target": "to-c", **FORM}
    shown = browser.post("/change/copy-records", data=form).text
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["to-c"])["to-c"].result(60)
    create(broker, "to-c")
    fields = dict(re.findall(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)"', shown))
    answer = browser.post("/change/copy-records", data={**fields, "typed_name": "to-c", "reason": "a test"})
    assert answer.status_code == 409
    assert re.search(r"(?i)id of topic to-c", text_of(answer.text)), text_of(answer.text)[300:900]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nowhere", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("__consumer_offsets", ""),
        ("narrow", "narrow has 1 partition, and no 2: let the key decide"),
        ("", "the topic to copy into is missing"),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    broker: BrokerProcess, browser: httpx.Client, target: str, expected: str
) -> None:
    names = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    if "wide" not in names:
        create(broker, "wide")
        create(broker, "narrow", partitions=1)
    form = {"csrf": csrf_in(browser.get("/topics").text), "topic": "wide", "target": target, **FORM}
    answer = browser.post("/change/copy-records", data=form)
    assert answer.status_code in (404, 422)
    assert expected.lower() in text_of(answer.text).lower()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of small chunks that waits for its topics before each."""
    monkeypatch.setattr(copying, "RECORDS_AT_ONCE", 1)
    monkeypatch.setattr(copying, "CHUNK_RECORDS", 1)


@pytest.mark.usefixtures("slow")
def test_a_copy_is_stopped_by_a_person_and_says_where(
    broker: BrokerProcess, browser: httpx.Client, audit_lines: Path
) -> None:
    create(broker, "from-d", "to-d")
    write(broker, "from-d", 3_000)
    change(browser, "copy-records", "to-d", topic="from-d", target="to-d", **FORM)
    job_id = get_json(browser, "/copies")["jobs"][0]["id"]
    until(lambda: get_json(browser, f"/copies/{job_id}")["job"]["progress"]["written_records"] > 3, timeout_s=60)
    change(browser, "stop-copy", job_id, id=job_id)
    page = ended(browser)
    found = re.search(r"stopped it\. ([0-9,]+) records were written", page)
    assert found
    assert "It stopped at" in page
    rows = get_json(browser, "/topics/to-d/messages?stands=committed&contains=nowhere")
    assert rows["cost"]["records"] >= int(found[1].replace(",", ""))
    outcomes = [json.loads(line)["outcome"] for line in audit_lines.read_text().splitlines()]
    assert outcomes.count("interrupted") == 1


@pytest.mark.usefixtures("slow")
def test_a_log_out_ends_the_copies_of_a_session_and_nobody_else_sees_them(
    broker: BrokerProcess, console: RunningConsole, audit_lines: Path
) -> None:
    create(broker, "from-e", "to-e")
    write(broker, "from-e", 3_000)
    with console.browser() as person, console.browser() as other:
        change(person, "copy-records", "to-e", topic="from-e", target="to-e", **FORM)
        job_id = get_json(person, "/copies")["jobs"][0]["id"]
        assert other.get(f"/copies/{job_id}").status_code == 404
        assert get_json(other, "/copies")["jobs"] == []
        person.post("/log-out", data={"csrf": csrf_in(person.get("/topics").text)})

    def last() -> dict[str, str]:
        found: dict[str, str] = json.loads(audit_lines.read_text().splitlines()[-1])
        return found

    until(lambda: last()["outcome"] == "interrupted", timeout_s=60)
    assert "session of the person who started it has ended" in last()["why"]


@pytest.mark.usefixtures("slow")
def test_a_session_has_two_copies_at_once_at_most(broker: BrokerProcess, browser: httpx.Client) -> None:
    create(broker, "from-f", "to-f")
    write(broker, "from-f", 3_000)
    for _ in range(2):
        change(browser, "copy-records", "to-f", topic="from-f", target="to-f", **FORM)
    form = {"csrf": csrf_in(browser.get("/topics").text), "topic": "from-f", "target": "to-f", **FORM}
    answer = browser.post("/change/copy-records", data=form)
    assert answer.status_code == 422
    assert "2 jobs of yours are running" in text_of(answer.text)
    browser.post("/log-out", data={"csrf": csrf_in(browser.get("/topics").text)})


def test_viewers_do_not_copy() -> None:
    assert needed_role("copy-records") is Role.OPERATOR
    assert needed_role("stop-copy") is Role.OPERATOR


def test_a_read_only_console_has_no_copies(broker: BrokerProcess) -> None:
    create(broker, "from-g")
    with RunningConsole(options_for(broker, read_only=True)) as running, running.browser() as browser:
        assert "/copy" not in browser.get("/topics/from-g/messages").text
