"""Offsets of groups are moved and copied as they were shown, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.web.pages.group_changes import MOST_ROWS
from tests.console.running import RunningConsole, change, csrf_in, get_json, hidden_fields, look, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

pytestmark = pytest.mark.integration

NUMBERS = count()
CONFIRM = {"reason": "it has to read them again"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as console, console.browser() as client:
        yield client


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"topic-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(60)
    write(broker, name, 10)
    return name


def write(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        for partition in (0, 1):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(60) == 0


def commit(broker: BrokerProcess, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset, metadata="by hand") for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(browser: httpx.Client, group: str) -> list[int]:
    return [one["committed"] for one in get_json(browser, f"/group?id={group}")["state"]["offsets"]]


def confirm(browser: httpx.Client, kind: str, typed: str, form: dict[str, str]) -> tuple[int, str]:
    answer = browser.post(f"/change/{kind}", data={**form, **CONFIRM, "typed_name": typed})
    return answer.status_code, text_of(answer.text)


def test_offsets_that_have_moved_since_are_not_moved_again(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group = f"moved-{topic}"
    commit(broker, group, topic, 5, 6)
    form = look(browser, "reset-offsets", id=group, target="earliest")
    commit(broker, group, topic, 5, 7)
    status, said = confirm(browser, "reset-offsets", group, form)
    assert status == 409
    assert f"The committed offset of {topic}-1: 6 when you looked, 7 now." in said
    assert f"{topic}-1 7 0 -7" in said
    assert committed(browser, group) == [5, 7]


def test_a_group_that_has_got_a_member_since_is_named(broker: BrokerProcess, browser: httpx.Client, topic: str) -> None:
    group = f"active-{topic}"
    commit(broker, group, topic, 5, 6)
    forms = {kind: look(browser, kind, id=group, target="latest") for kind in ("reset-offsets", "delete-group")}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), timeout_s=60)
    try:
        for kind, form in forms.items():
            status, said = confirm(browser, kind, group, form)
            assert status == 409
            assert f"The state of group {group}: Empty when you looked, Stable now." in said
            assert "The group has members" in said or "It has members" in said
    finally:
        consumer.close()


def test_the_end_that_was_shown_is_committed_though_the_log_has_grown(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group = f"grown-{topic}"
    commit(broker, group, topic, 5, 6)
    form = look(browser, "reset-offsets", id=group, target="latest", topic=topic)
    assert json.loads(form["offsets"]) == {topic: {"0": 10, "1": 10}}
    write(broker, topic, 3)
    status, said = confirm(browser, "reset-offsets", group, form)
    assert (status, "2 offsets of" in said) == (200, True)
    assert committed(browser, group) == [10, 10]


def test_an_offset_that_the_log_has_lost_since_is_named(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group = f"lost-{topic}"
    commit(broker, group, topic, 5, 6)
    form = look(browser, "reset-offsets", id=group, target="offset", value="2")
    change(browser, "delete-records", f"{topic}-1", name=topic, partition="1", offset="4")
    status, said = confirm(browser, "reset-offsets", group, form)
    assert status == 409
    assert f"The new offset of {topic}-1, 2: in the log when you looked, below the log's first offset, 4 now." in said
    assert f"{topic}-1 6 4 -2" in said
    assert committed(browser, group) == [5, 6]


@pytest.mark.parametrize("offsets", ["", "[]", "{}", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": -1}}', "{" * 500])
def test_offsets_that_a_form_invents_are_no_offsets(
    broker: BrokerProcess, browser: httpx.Client, topic: str, offsets: str
) -> None:
    group = f"forged-{topic}"
    commit(broker, group, topic, 5, 6)
    form = {**look(browser, "reset-offsets", id=group, target="latest"), "offsets": offsets}
    status, _ = confirm(browser, "reset-offsets", group, form)
    assert status in (409, 422)
    assert committed(browser, group) == [5, 6]


def test_offsets_are_copied_to_a_new_group_while_the_old_one_goes_on(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group, new = f"old-{topic}", f"new-{topic}"
    commit(broker, group, topic, 5, 6)
    form = look(browser, "copy-offsets", id=group, to=new)
    commit(broker, group, topic, 5, 9)
    status, said = confirm(browser, "copy-offsets", new, form)
    assert (status, f"2 offsets of {group} were copied to {new}." in said) == (200, True)
    offsets = get_json(browser, f"/group?id={new}")["state"]["offsets"]
    # librdkafka ends its metadata with a NUL. That of an offset which has moved on is not that of the copy.
    assert [(one["committed"], one["metadata"].rstrip("\0")) for one in offsets] == [(5, "by hand"), (6, "")]
    assert committed(browser, group) == [5, 9]
    again = browser.post("/change/copy-offsets", data={"csrf": form["csrf"], "id": group, "to": new})
    assert (again.status_code, f"there is a group {new}" in text_of(again.text).lower()) == (422, True)


def test_offsets_are_not_copied_over_those_of_a_group_that_has_come_since(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group, new = f"old-{topic}", f"came-{topic}"
    commit(broker, group, topic, 5, 6)
    form = look(browser, "copy-offsets", id=group, to=new)
    commit(broker, new, topic, 1, 1)
    status, said = confirm(browser, "copy-offsets", new, form)
    assert (status, f"there is a group {new}" in said.lower()) == (422, True)
    assert committed(browser, new) == [1, 1]


def test_offsets_that_an_open_transaction_holds_are_not_moved(
    broker: BrokerProcess, browser: httpx.Client, topic: str
) -> None:
    group = f"pending-{topic}"
    commit(broker, group, topic, 5, 6)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 8)], consumer.consumer_group_metadata(), 60)
    csrf = csrf_in(browser.get("/topics").text)
    form = {"csrf": csrf, "id": group, "target": "earliest"}
    answer = browser.post("/change/reset-offsets", data=form)
    assert f"a transaction that is still open holds an offset of {group} for {topic}-1" in text_of(answer.text).lower()
    producer.abort_transaction(60)
    consumer.close()
    until(lambda: browser.post("/change/reset-offsets", data=form).status_code == 200, timeout_s=60)


def test_a_dry_run_of_many_partitions_shows_the_first_and_moves_all(
    broker: BrokerProcess, browser: httpx.Client
) -> None:
    width = MOST_ROWS + 50
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("wide", width, 1)]).values():
        future.result(60)
    commit(broker, "wide-readers", "wide", *[0] * width)
    write_to = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(width):
        write_to.produce("wide", "a", partition=index)
    assert write_to.flush(60) == 0
    form = {"csrf": csrf_in(browser.get("/topics").text), "id": "wide-readers", "target": "latest"}
    shown = browser.post("/change/reset-offsets", data=form)
    assert shown.text.count("<tr><td>wide-") == MOST_ROWS
    assert "The table shows 200 of them; 50 more are changed alike." in text_of(shown.text)
    status, _ = confirm(browser, "reset-offsets", "wide-readers", hidden_fields(shown.text))
    assert status == 200
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "wide-readers"})
    found = consumer.committed([TopicPartition("wide", index) for index in range(width)], 60)
    consumer.close()
    assert {one.offset for one in found} == {1}
