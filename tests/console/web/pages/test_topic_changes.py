"""Changes of topics and settings are refused, with the difference, if they are not as they were shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.console.running import RunningConsole, change, csrf_in, get_json, look, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as console, console.browser() as client:
        yield client


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, name: str, partitions: int = 1) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(60)


def delete(admin: AdminClient, name: str) -> None:
    for future in admin.delete_topics([name]).values():
        future.result(60)


def write(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0


def refused(browser: httpx.Client, kind: str, typed: str, form: dict[str, str], said: str) -> dict[str, str]:
    """Confirm a change that must be refused with a sentence; the page shows the change anew."""
    answer = browser.post(f"/change/{kind}", data={**form, "typed_name": typed, "reason": "it is old"})
    assert answer.status_code == 409, text_of(answer.text)
    assert said in text_of(answer.text)
    assert "Nothing was done." in text_of(answer.text)
    return {**form, "preview": answer.text.partition('name="preview" value="')[2].partition('"')[0]}


CHANGES: list[tuple[str, dict[str, str]]] = [
    ("delete-topic", {"name": "{0}"}),
    ("add-partitions", {"name": "{0}", "count": "5"}),
    ("alter-topic-setting", {"topic": "{0}", "setting": "retention.ms", "value": "7000000"}),
    ("produce-record", {"topic": "{0}", "partition": "0", "value": "late"}),
]


@pytest.mark.parametrize(("kind", "fields"), CHANGES, ids=[kind for kind, _ in CHANGES])
def test_a_topic_that_was_made_anew_is_another_one(
    broker: BrokerProcess, browser: httpx.Client, admin: AdminClient, kind: str, fields: dict[str, str]
) -> None:
    name = f"anew-{kind}"
    create(admin, name)
    form = look(browser, kind, **{key: value.format(name) for key, value in fields.items()})
    delete(admin, name)
    create(admin, name)
    form = refused(browser, kind, name, form, f"The id of topic {name}: ")
    done = browser.post(f"/change/{kind}", data={**form, "typed_name": name, "reason": "it is old"})
    assert done.status_code == 200, text_of(done.text)


def test_a_topic_that_got_a_reader_records_or_partitions_is_not_deleted(
    broker: BrokerProcess, browser: httpx.Client, admin: AdminClient
) -> None:
    create(admin, "old")

    def got_records() -> None:
        write(broker, "old", 3)

    def got_a_reader() -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "late-reader"})
        consumer.commit(offsets=[TopicPartition("old", 0, 1)], asynchronous=False)
        consumer.close()

    def got_partitions() -> None:
        for future in admin.create_partitions([NewPartitions("old", 3)]).values():
            future.result(60)

    changes: list[tuple[Callable[[], None], str]] = [
        (got_records, "Whether it has records: no when you looked, yes now."),
        (got_a_reader, "Groups that read it: none when you looked, late-reader now."),
        (got_partitions, "The number of partitions: 1 when you looked, 3 now."),
    ]
    for happens, said in changes:
        form = look(browser, "delete-topic", name="old")
        happens()
        refused(browser, "delete-topic", "old", form, said)
    # More of the same does not matter.
    form = look(browser, "delete-topic", name="old")
    write(broker, "old", 3)
    done = browser.post("/change/delete-topic", data={**form, "typed_name": "old", "reason": "it is old"})
    assert "Topic old was deleted." in text_of(done.text)
    assert browser.get("/topics/old").status_code == 404


def test_records_are_deleted_only_from_the_log_that_was_seen(
    broker: BrokerProcess, browser: httpx.Client, admin: AdminClient
) -> None:
    create(admin, "trimmed")
    write(broker, "trimmed", 10)
    form = look(browser, "delete-records", topic="trimmed", name="trimmed", partition="0", offset="8")
    change(browser, "delete-records", "trimmed-0", name="trimmed", partition="0", offset="4")
    form = refused(
        browser,
        "delete-records",
        "trimmed-0",
        form,
        "The first offset of trimmed-0: 0 when you looked, 4 now.",
    )
    write(broker, "trimmed", 5)
    done = browser.post("/change/delete-records", data={**form, "typed_name": "trimmed-0", "reason": "personal data"})
    assert "trimmed-0 begins at offset 8 now." in text_of(done.text)
    beyond = {"name": "trimmed", "partition": "0", "offset": "99"}
    answer = browser.post("/change/delete-records", data={"csrf": form["csrf"], **beyond})
    assert (answer.status_code, "at most 15" in text_of(answer.text)) == (422, True)


@pytest.mark.parametrize("kind", ["alter-topic-setting", "alter-broker-setting", "set-log-level", "set-quota"])
def test_a_value_that_another_person_has_set_meanwhile_is_named(
    browser: httpx.Client, admin: AdminClient, kind: str
) -> None:
    node = str(get_json(browser, "/settings")["broker"])
    create(admin, f"set-{kind}")
    typed, fields, values = {
        "alter-topic-setting": (
            f"set-{kind}",
            {"topic": f"set-{kind}", "setting": "retention.ms"},
            ("1000000", "2000000"),
        ),
        "alter-broker-setting": (
            "log.retention.ms",
            {"broker": node, "setting": "log.retention.ms"},
            ("7000000", "8000000"),
        ),
        "set-log-level": ("broker.log", {"broker": node, "setting": "broker.log"}, ("WARN", "ERROR")),
        "set-quota": ("user zoe", {"user": "zoe", "key": "producer_byte_rate"}, ("1000", "2000")),
    }[kind]
    mine = look(browser, kind, **fields, value=values[0])
    theirs = change(browser, kind, typed, **fields, value=values[1])
    assert theirs.status_code == 200
    mine = refused(browser, kind, typed, mine, " when you looked, ")
    done = browser.post(f"/change/{kind}", data={**mine, "typed_name": typed, "reason": "ticket 7"})
    assert done.status_code == 200, text_of(done.text)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("create-topic", {"name": "x" * 40_000}),
        ("set-quota", {"user": "zoe", "key": "producer_byte_rate", "value": "nan"}),
        ("set-quota", {"user": "z" * 40_000, "key": "producer_byte_rate", "value": "1"}),
        ("set-password", {"user": "", "mechanism": "both"}),
        ("set-log-level", {"broker": "9" * 400, "setting": "broker.log", "value": "DEBUG"}),
    ],
)
def test_input_that_cannot_be_used_is_refused_in_a_sentence(
    browser: httpx.Client, kind: str, fields: dict[str, str]
) -> None:
    answer = browser.post(f"/change/{kind}", data={"csrf": csrf_in(browser.get("/topics").text), **fields})
    assert answer.status_code in (422, 502)
    assert "The console itself failed" not in answer.text


def test_a_user_that_was_removed_meanwhile_is_named(browser: httpx.Client) -> None:
    secret = {"password": "pass", "password_again": "pass", "reason": "a colleague", "typed_name": "mia"}
    form = look(browser, "set-password", user="mia", mechanism="SCRAM-SHA-256")
    assert browser.post("/change/set-password", data=form | secret).status_code == 200
    form = look(browser, "set-password", user="mia", mechanism="both")
    change(browser, "remove-user", "mia", user="mia")
    refused(
        browser,
        "set-password",
        "mia",
        form | {"password": "pass", "password_again": "pass"},
        "The credentials of mia: SCRAM-SHA-256 with 8192 iterations when you looked, none now.",
    )
    until(lambda: get_json(browser, "/users")["listing"]["total"] == 0, timeout_s=60)


def test_a_topic_says_how_many_partitions_and_copies_it_gets_by_default(browser: httpx.Client) -> None:
    shown = browser.post(
        "/change/create-topic", data={"csrf": look(browser, "create-topic", name="new")["csrf"], "name": "new"}
    )
    assert "The topic new is created with 1 partition, each with 1 copy." in text_of(shown.text)
