"""The hands-on commands against a broker process, as a person or a script runs them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.conditions import until
from tests.support.hanging_transaction import leave_hanging

Run = Callable[..., Result]
Unique = Callable[[str], str]
AT_ONCE_S = 30.0
"""Less than the minute for which clients try in silence, and enough for a busy machine."""


def consumed(run: Run, topic: str, *options: str) -> list[Any]:
    shown = run("consume", topic, "--from-beginning", "--exit-at-end", "--json", *options)
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


def state(run: Run, transactional_id: str) -> Any:
    """Of the transaction: complete only when its markers are written, which follow its end."""
    (described,) = json.loads(run("transactions", "describe", transactional_id, "--json").stdout)
    return described["state"]


def values(run: Run, topic: str, *options: str) -> list[Any]:
    return [record["value"] for record in consumed(run, topic, *options)]


# Asking whether it serves


def test_ping_says_that_the_broker_serves(run: Run) -> None:
    assert run("ping").exit_code == 0
    answer = json.loads(run("ping", "--json").stdout)
    assert answer["bootstrap"] in run("ping").stdout
    assert answer["apis"] > 40


def test_ping_waits_for_a_broker_that_starts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        address = process.bootstrap
    command = [sys.executable, "-m", "fencepost", "ping", "--bootstrap", address, "--wait-seconds", "60"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ping:
        process.start()
        try:
            assert ping.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    "command", [("topics", "list"), ("consume", "a"), ("produce", "a"), ("groups", "list"), ("transactions", "list")]
)
def test_without_a_broker_every_command_says_so_at_once(command: tuple[str, ...]) -> None:
    started_s = time.monotonic()
    result = CliRunner().invoke(fencepost, [*command, "--bootstrap", "127.0.0.1:1"], prog_name="fencepost")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: no broker answers at 127.0.0.1:1: connection refused. Start one with ")
    assert len(result.stderr.splitlines()) == 1
    assert time.monotonic() - started_s < AT_ONCE_S


def test_a_bad_address_is_refused_before_anything_is_tried(run: Run) -> None:
    result = run("topics", "list", "--bootstrap", "nowhere")
    assert result.exit_code == 2
    assert "expected HOST:PORT, such as 127.0.0.1:9092" in result.stderr


@pytest.mark.parametrize("option", ["--bootstrap", "--bootstrap-server", "-b"])
def test_the_broker_is_named_as_other_tools_name_it(broker: BrokerProcess, option: str) -> None:
    for command in (("ping",), ("topics", "list"), ("cluster", "info")):
        result = CliRunner().invoke(fencepost, [*command, option, broker.bootstrap], prog_name="fencepost")
        assert result.exit_code == 0, result.output


def test_habits_of_other_tools_work(run: Run, unique: Unique) -> None:
    name = unique("habits")
    created = run("topics", "create", name, "-p", "2", "--replication-factor", "1")
    assert created.stdout == f"created {name} with 2 partitions\n"
    assert run("produce", name, "-p", "1", input="a\nb\n").exit_code == 0
    assert run("consume", name, "--from-beginning", "-n", "2").stdout == "a\nb\n"
    refused = run("topics", "create", unique("habits"), "-p", "1", "-r", "3")
    assert refused.exit_code == 1
    assert "INVALID_REPLICATION_FACTOR (38)" in refused.stderr
    assert run("version").stdout == run("--version").stdout


def test_the_cluster_shows_its_brokers_and_their_addresses(broker: BrokerProcess, run: Run) -> None:
    described = json.loads(run("cluster", "info", "--json").stdout)
    (node,) = described["brokers"]
    assert (node["address"], node["is_controller"]) == (broker.bootstrap, True)
    shown = run("cluster", "info").stdout
    assert shown.startswith(f"cluster {described['cluster_id']}\n")
    assert broker.bootstrap in shown


# Topics


def test_a_topic_is_created_shown_grown_and_deleted(run: Run, unique: Unique) -> None:
    name = unique("life")
    assert run("topics", "create", name, "--partitions", "2").stdout == f"created {name} with 2 partitions\n"
    assert run("topics", "create", name, "--if-missing").stdout == f"left as it is: {name} with 2 partitions\n"
    assert run("topics", "grow", name, "--partitions", "3").exit_code == 0
    listed = {row["topic"]: row for row in json.loads(run("topics", "list", "--json").stdout)}
    assert listed[name]["partitions"] == 3
    assert len(listed[name]["topic_id"]) == 22
    run("produce", name, "--partition", "1", input="a\nb\n")
    described = json.loads(run("topics", "describe", name, "--json").stdout)
    offsets = ("partition", "log_start_offset", "last_stable_offset", "high_watermark")
    assert [described[1][column] for column in offsets] == [1, 0, 2, 2]
    assert run("topics", "delete", name, input="n\n").exit_code == 2
    assert run("topics", "delete", name, "--yes").stdout == f"deleted {name}\n"
    assert name not in run("topics", "list").stdout


def test_several_topics_are_created_and_deleted_with_one_command(run: Run, unique: Unique) -> None:
    first, second, third = unique("several"), unique("several"), unique("several")
    created = run("topics", "create", first, second, first, "-p", "2")
    assert created.stdout == f"created {first} with 2 partitions\ncreated {second} with 2 partitions\n"
    left = json.loads(run("topics", "create", second, third, "--if-missing", "--json").stdout)
    assert [(row["topic"], row["created"]) for row in left] == [(second, False), (third, True)]
    assert run("topics", "delete", first, second, "--yes").stdout == f"deleted {first}\ndeleted {second}\n"
    assert json.loads(run("topics", "delete", third, "--yes", "--json").stdout) == [
        {"topic": third, "deleted": True, "error": None}
    ]


def test_of_several_topics_those_that_can_be_are_created_or_deleted(run: Run, unique: Unique) -> None:
    old, new, missing = unique("several"), unique("several"), unique("missing")
    run("topics", "create", old, "-p", "1")
    created = run("topics", "create", old, new, "-p", "1")
    assert (created.exit_code, created.stdout) == (1, f"created {new} with 1 partition\n")
    assert f"{old} was not created: the broker refused: TOPIC_ALREADY_EXISTS (36)" in created.stderr
    deleted = run("topics", "delete", old, missing, new, "--yes")
    assert (deleted.exit_code, deleted.stdout) == (1, f"deleted {old}\ndeleted {new}\n")
    assert f"{missing} was not deleted: there is no topic '{missing}'" in deleted.stderr


def test_what_commands_have_done_is_read_by_programs(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    topic, transactional_id = unique("done"), unique("done")
    run("topics", "create", topic, "-p", "1")
    grown = json.loads(run("topics", "grow", topic, "-p", "2", "--json").stdout)
    assert grown == [{"topic": topic, "partitions": 2, "before": 1, "error": None}]
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(60) == 0
    aborted = json.loads(run("transactions", "abort", transactional_id, "--yes", "--json").stdout)
    assert (aborted["transactional_id"], aborted["outcome"]) == (transactional_id, "aborted")
    assert json.loads(run("version", "--json").stdout)["version"] in run("version").stdout
    group = unique("done")
    run("produce", topic, input="1\n")
    run("consume", topic, "--group", group, "--from-beginning", "-n", "1")
    assert json.loads(run("groups", "delete", group, "--yes", "--json").stdout)[0]["deleted"] is True


def test_the_dead_letters_of_a_share_group_are_shown(run: Run, broker: BrokerProcess, unique: Unique) -> None:
    group, topic = unique("sharers"), f"dlq.{unique('letters')}"
    refused = run("groups", "dead-letters", group)
    assert refused.exit_code == 1
    assert "has no dead-letter topic" in refused.stderr
    run("topics", "create", topic)
    run("configs", "group", group, "--set", f"errors.deadletterqueue.topic.name={topic}")
    assert json.loads(run("groups", "dead-letters", group, "--json").stdout) == []
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for owner in (group, "others"):
        headers = {"topic": "orders", "partition": "2", "offset": "41", "group": owner, "delivery.count": "5"}
        producer.produce(topic, b"v", headers=[(f"__dlq.errors.{name}", text) for name, text in headers.items()])
    assert producer.flush(60) == 0
    (row,) = json.loads(run("groups", "dead-letters", group, "--json").stdout)
    assert [row[name] for name in ("topic", "partition", "offset", "value")] == ["orders", 2, 41, "v"]
    assert "41" in run("groups", "dead-letters", group).stdout


def test_every_record_has_the_key_that_was_given(run: Run, unique: Unique) -> None:
    topic = unique("keyed")
    assert run("produce", topic, "--key", "k", "--header", "a=b", input="1\n2\n").exit_code == 0
    shown = consumed(run, topic)
    assert [(one["key"], one["value"], one["headers"]) for one in shown] == [
        ("k", "1", [["a", "b"]]),
        ("k", "2", [["a", "b"]]),
    ]
    assert run("produce", topic, "--key", "k", "--key-separator", ":", input="a:1\n").exit_code == 2
    assert run("produce", topic, "--key", "~", "--null-marker", "~", input="3\n").exit_code == 0
    assert {record["value"]: record["key"] for record in consumed(run, topic)}["3"] is None


def completed(broker: BrokerProcess, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    found = ShellComplete(fencepost, {}, "fencepost", "_FENCEPOST_COMPLETE")
    *before, incomplete = words
    return [item.value for item in found.get_completions([*before, "--bootstrap", broker.bootstrap], incomplete)]


def test_a_shell_completes_names_that_the_broker_knows(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    first, second = sorted((unique("completed"), unique("completed")))
    run("topics", "create", first, second, "-p", "1")
    run("produce", first, "--transactional-id", first, input="1\n")
    run("consume", first, "--group", second, "--from-beginning", "-n", "1")
    assert completed(broker, "topics", "describe", "completed-") == [first, second]
    assert completed(broker, "topics", "delete", first, "completed-") == [second]
    assert completed(broker, "transactions", "describe", "completed-") == [first]
    assert completed(broker, "groups", "describe", "completed-") == [second]
    assert completed(broker, "topics", "describe", "__transaction_st") == ["__transaction_state"]
    assert not any(name.startswith("__") for name in completed(broker, "topics", "describe", ""))


IN_BASH = """
eval "$(_FENCEPOST_COMPLETE=bash_source fencepost)"
complete -p fencepost
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_fencepost_completion fencepost
printf 'offered %s\\n' "${COMPREPLY[@]}"
"""


def in_bash(*words: str) -> list[str]:
    """What bash offers for the last word, by the function that the page installs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        ["bash", "--norc", "-c", IN_BASH, "bash", *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    registered, *offered = shown.stdout.splitlines()
    assert "_fencepost_completion fencepost" in registered
    return [line.removeprefix("offered ") for line in offered]


def test_bash_completes_names_of_the_broker_and_profile_of_the_line(
    broker: BrokerProcess, run: Run, unique: Unique, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    name = unique("in-bash")
    run("topics", "create", name)
    run("profile", "create", "mine", "--bootstrap", broker.bootstrap)
    for options in (("--bootstrap", broker.bootstrap), ("--profile", "mine")):
        assert in_bash("fencepost", "topics", "describe", *options, "in-bash") == [name]
    assert in_bash("fencepost", "topics", "list", "--profile", "m") == ["mine"]
    assert "retention.ms=" in in_bash(
        "fencepost", "topics", "configs", name, "-b", broker.bootstrap, "--set", "retention"
    )
    assert in_bash("fencepost", "topics", "describe", "-b", "127.0.0.1:1", "in-bash") == [""]
    assert "describe" in in_bash("fencepost", "topics", "des")


def test_without_a_broker_nothing_is_completed_and_nothing_said() -> None:
    words = "fencepost topics describe --bootstrap 127.0.0.1:1 o"
    asked = {"_FENCEPOST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = Path(sys.executable).with_name("fencepost")
    shown = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert (shown.stdout, shown.stderr) == ("\n", "")


def test_internal_topics_are_shown_on_request(run: Run, unique: Unique) -> None:
    run("produce", unique("internal"), "--transactional-id", unique("internal"), input="a\n")
    assert "__transaction_state" not in run("topics", "list").stdout
    assert "__transaction_state" in run("topics", "list", "--internal").stdout


def test_the_settings_of_a_topic_are_shown_with_their_sources(run: Run, unique: Unique) -> None:
    name = unique("settings")
    run("topics", "create", name, "--config", "cleanup.policy=compact", "--config", "retention.ms=5")
    own = json.loads(run("topics", "configs", name, "--json").stdout)
    assert [(row["name"], row["value"]) for row in own] == [("cleanup.policy", "compact"), ("retention.ms", "5")]
    assert {row["source"] for row in own} == {"DYNAMIC_TOPIC_CONFIG"}
    everything = {row["name"]: row for row in json.loads(run("topics", "configs", name, "--all", "--json").stdout)}
    assert everything["segment.bytes"]["source"] == "DEFAULT_CONFIG"


def test_the_settings_of_a_topic_are_changed(run: Run, unique: Unique) -> None:
    name = unique("settings")
    run("topics", "create", name, "--config", "cleanup.policy=compact")
    changes = ("--set", "retention.ms=5", "--set", "flush.ms=7", "--delete", "cleanup.policy")
    own = json.loads(run("topics", "configs", name, "--json", *changes).stdout)
    assert [(row["name"], row["value"]) for row in own] == [("flush.ms", "7"), ("retention.ms", "5")]
    assert f"changed retention.ms of {name}" in run("topics", "configs", name, "--delete", "retention.ms").stdout
    refused = run("topics", "configs", name, "--set", "retention.ms=soon")
    assert refused.exit_code == 1
    assert "Invalid value soon for configuration retention.ms" in refused.stderr
    assert run("topics", "configs", name, "--set", "flush.ms=1", "--delete", "flush.ms").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "no good"), "INVALID_TOPIC (17): Topic name is invalid"),
        (
            ("create", "x", "--config", "retention.m=1"),
            "INVALID_CONFIG (40): Unknown topic config name: retention.m; did you",
        ),
        (("create", "x", "--config", "retention.ms"), "'retention.ms' is not NAME=VALUE"),
        (("create", "x", "--partitions", "0"), "0 is not in the range"),
        (("describe", "missing"), "there is no topic 'missing'; `fencepost topics list` shows which there are"),
        (("configs", "missing"), "there is no topic 'missing'"),
        (("grow", "missing", "--partitions", "2"), "there is no topic 'missing'; `fencepost"),
        (("delete", "missing", "--yes"), "there is no topic 'missing'; `fencepost"),
        (("grow",), "Missing"),
        (("delete", "--yes"), "name the topics, or choose them with --pattern"),
    ],
)
def test_errors_about_a_topic_take_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("topics", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr.splitlines()[-1]
    assert "Request" not in result.stderr


# Writing and reading


def test_keys_values_and_headers_arrive(run: Run, unique: Unique) -> None:
    topic = unique("keys")
    written = run("produce", topic, "--key-separator", ":", "--header", "from=test", input="a:1\nb:2\nnone\n")
    assert written.stderr == "3 records written\n"
    records = sorted(consumed(run, topic), key=lambda record: str(record["value"]))
    assert [(record["key"], record["value"]) for record in records] == [("a", "1"), ("b", "2"), (None, "none")]
    assert records[0]["headers"] == [["from", "test"]]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(run: Run, unique: Unique, compression: str) -> None:
    topic = unique(compression)
    assert run("produce", topic, "--compression", compression, input="a" * 1000).exit_code == 0
    assert values(run, topic) == ["a" * 1000]


def test_bytes_come_out_of_a_pipe_as_they_went_in(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    topic = unique("bytes")
    content = bytes(range(256)) + b"\r\n\x00\n"
    run("produce", topic, "--partition", "0", input=content)
    command = [sys.executable, "-m", "fencepost", "consume", topic, "--from-beginning", "--max-records", "3"]
    read = subprocess.run(
        [*command, "--bootstrap", broker.bootstrap], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    assert read.stdout == content
    assert read.stderr == b"3 records read\n"


def test_json_carries_a_topic_over_to_another_one(run: Run, unique: Unique) -> None:
    source, target = unique("source"), unique("target")
    run("topics", "create", source, "--partitions", "2")
    run("topics", "create", target, "--partitions", "2")
    run("produce", source, "--key-separator", ":", "--null-marker", "~", input=b"a:~\n~:\xff\nb:\n")
    shown = run("consume", source, "--from-beginning", "--max-records", "3", "--json").stdout
    assert run("produce", target, "--json", input=shown + "\n").stderr == "3 records written\n"

    def essentials(topic: str) -> list[str]:
        return sorted(
            json.dumps([record["partition"], record["offset"], record["key"], record["value"]])
            for record in consumed(run, topic)
        )

    assert essentials(target) == essentials(source)
    assert any('"a", null' in record for record in essentials(target))


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (("--partition", "9"), "x\n", "Error: line 1: topic '{topic}' has no partition 9; it has 3"),
        (("--json",), '{"value": "a"}\n\n{"value": 1}\n', 'Error: line 3: "value" must be text, null or'),
        ((), "small\n" + "x" * 1_500_000, "MESSAGE_SIZE_TOO_LARGE (10)"),
        (("--abort",), "x\n", "need --transactional-id"),
        (("--header", "a"), "x\n", "'a' is not NAME=VALUE"),
        (("--key-separator", ""), "x\n", "it must have at least one character"),
        (("--json", "--key-separator", ":"), "{}", "leave out --key-separator"),
    ],
)
def test_errors_in_the_input_are_reported(
    run: Run, unique: Unique, options: tuple[str, ...], text: str, message: str
) -> None:
    topic = unique("wrong")
    result = run("produce", topic, *options, input=text)
    assert result.exit_code in (1, 2)
    assert message.format(topic=topic) in result.stderr
    assert "Traceback" not in result.stderr


def test_reading_an_unknown_topic_does_not_create_it(run: Run) -> None:
    result = run("consume", "missing", "--idle-seconds", "0")
    assert result.exit_code == 1
    assert "there is no topic 'missing'" in result.stderr
    assert "missing" not in run("topics", "list").stdout


def test_a_hundred_thousand_lines_take_seconds(run: Run, unique: Unique) -> None:
    topic = unique("long")
    run("topics", "create", topic, "--partitions", "1")
    text = "".join(f"{number}\n" for number in range(100_000))
    started_s = time.process_time()  # what other programs take of the processors does not count
    assert run("produce", topic, input=text).stderr == "100000 records written\n"
    shown = run("consume", topic, "--from-beginning", "--max-records", "100000")
    assert time.process_time() - started_s < 30
    assert shown.stdout == text


def test_a_reader_that_goes_away_ends_the_output_quietly(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    topic = unique("pipe")
    run("produce", topic, "--partition", "0", input="a\n" * 50_000)
    command = (
        f"{sys.executable} -m fencepost consume {topic} --from-beginning --bootstrap {broker.bootstrap} | head -n 1"
    )
    read = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert read.stdout == b"a\n"
    assert b"Traceback" not in read.stderr
    assert b"no broker" not in read.stderr


def test_a_file_is_written_with_times_and_no_faster_than_asked_for(run: Run, unique: Unique, tmp_path: Path) -> None:
    topic, copied = unique("file"), unique("file")
    for name in (topic, copied):
        run("topics", "create", name, "-p", "1", "--config", "retention.ms=-1")
    lines = tmp_path / "lines"
    lines.write_text("1\n2\n3\n4\n5\n")
    started_s = time.monotonic()
    written = run("produce", topic, "-i", str(lines), "--timestamp", "2026-01-31T14:02:00Z", "--rate", "10")
    assert written.stderr == "5 records written\n"
    assert time.monotonic() - started_s >= 0.4
    found = consumed(run, topic)
    assert {record["timestamp_ms"] for record in found} == {1_769_868_120_000}
    shown = run("consume", topic, "-e", "--from-beginning", "--json").stdout
    assert run("produce", copied, "--json", "--keep-timestamps", input=shown).exit_code == 0
    assert [record["timestamp_ms"] for record in consumed(run, copied)] == [1_769_868_120_000] * 5
    assert "No such file" in run("produce", topic, "-i", str(tmp_path / "missing")).stderr
    assert run("produce", topic, "--keep-timestamps", input="x\n").exit_code == 2
    wrong = run("produce", topic, "--json", "--keep-timestamps", input='{"value": "a", "timestamp_ms": "soon"}\n')
    assert 'line 1: "timestamp_ms" must be milliseconds since 1970' in wrong.stderr


# Transactions


def test_aborted_records_are_left_out_unless_requested(run: Run, unique: Unique) -> None:
    topic, transactional_id = unique("aborted"), unique("till")
    committed = run(
        "produce", topic, "--transactional-id", transactional_id, "--transaction-size", "2", input="1\n2\n3\n"
    )
    assert committed.stderr == "3 records written and committed in 2 transactions\n"
    aborted = run("produce", topic, "--transactional-id", transactional_id, "--abort", input="4\n")
    assert aborted.stderr == "1 record written and aborted in 1 transaction\n"
    until(lambda: state(run, transactional_id) == "CompleteAbort")
    assert sorted(values(run, topic)) == ["1", "2", "3"]
    assert sorted(values(run, topic, "--isolation-level", "read_uncommitted")) == ["1", "2", "3", "4"]
    listed = json.loads(run("transactions", "list", "--state", "CompleteAbort", "--json").stdout)
    assert transactional_id in [row["transactional_id"] for row in listed]


def test_a_bad_line_aborts_its_transaction(run: Run, unique: Unique) -> None:
    topic, transactional_id = unique("bad-line"), unique("bad-line")
    text = '{"value": "1"}\n{"value": "2"}\nno\n'
    options = ("--json", "--transactional-id", transactional_id, "--transaction-size", "1")
    result = run("produce", topic, *options, input=text)
    assert result.exit_code == 1
    assert "line 3: not JSON" in result.stderr
    assert "(2 records written and committed in 2 transactions)" in result.stderr
    until(lambda: state(run, transactional_id) in ("CompleteCommit", "CompleteAbort"))
    assert sorted(values(run, topic)) == ["1", "2"]


def test_a_hanging_transaction_is_found_and_aborted(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    from confluent_kafka import Producer

    topic, transactional_id = unique("hanging"), unique("hanging")
    run("topics", "create", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)
    (described,) = json.loads(run("transactions", "describe", transactional_id, "--json").stdout)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-0"])
    (found,) = json.loads(run("transactions", "producers", topic, "0", "--json").stdout)
    assert found["transaction_start_offset"] == 0
    (partition,) = json.loads(run("topics", "describe", topic, "--json").stdout)
    assert (partition["last_stable_offset"], partition["high_watermark"]) == (0, 1)
    command = ("transactions", "abort-hanging", topic, "0", "--producer-id", str(found["producer_id"]), "--yes")
    refused = run(*command)
    assert refused.exit_code == 1
    assert f"its coordinator knows it as that of {transactional_id}, Ongoing" in refused.stderr
    (partition,) = json.loads(run("topics", "describe", topic, "--json").stdout)
    assert (partition["last_stable_offset"], partition["high_watermark"]) == (0, 1)
    aborted = run(*command, "--force")
    assert aborted.exit_code == 0, aborted.output
    (partition,) = json.loads(run("topics", "describe", topic, "--json").stdout)
    assert (partition["last_stable_offset"], partition["high_watermark"]) == (2, 2)
    assert f"has no open transaction on {topic}-0" in run(*command).stderr


def test_a_transaction_is_terminated_and_its_producer_fenced(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    from confluent_kafka import KafkaException, Producer

    topic, transactional_id = unique("ended"), unique("ended")
    run("topics", "create", topic, "--partitions", "2")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 54_321}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"open", partition=partition)
    producer.flush(60)
    assert run("transactions", "terminate", transactional_id, input="n\n").exit_code == 2
    done = run("transactions", "terminate", transactional_id, "--yes")
    assert done.stdout == f"aborted the transaction of {transactional_id}, and fenced its producer\n"
    for partition in json.loads(run("topics", "describe", topic, "--json").stdout):
        assert (partition["last_stable_offset"], partition["high_watermark"]) == (2, 2)
    (described,) = json.loads(run("transactions", "describe", transactional_id, "--json").stdout)
    assert (described["state"], described["timeout_ms"]) == ("Empty", 54_321)
    with pytest.raises(KafkaException, match=r"fenced|newer instance|FENCED"):
        producer.commit_transaction(60)
    again = run("transactions", "terminate", transactional_id, "--yes")
    assert again.exit_code == 1
    assert f"{transactional_id} has no open transaction" in again.stderr


def test_a_transaction_that_no_coordinator_knows_hangs_until_it_is_aborted(tmp_path: Path) -> None:
    """Without verification an old client's late write opens a transaction that nobody will ever end."""
    process = BrokerProcess(tmp_path / "data", settings={"transaction.partition.verification.enable": "false"})
    process.start()

    def run(*arguments: str, input: str | None = None) -> Result:  # noqa: A002  # click's own word
        return CliRunner().invoke(fencepost, arguments, input=input, env={"FENCEPOST_BOOTSTRAP": process.bootstrap})

    try:
        run("topics", "create", "orders", "--partitions", "1")
        run("produce", "orders", input="before\n")
        leave_hanging(process.host, process.port, "orders")
        run("produce", "orders", input="after\n")
        read = ("consume", "orders", "--from-beginning", "--exit-at-end")
        assert "after" not in run(*read).stdout
        assert json.loads(run("transactions", "list", "--json").stdout) == []
        described = json.loads(run("transactions", "producers", "orders", "0", "--json").stdout)
        (hanging,) = [producer for producer in described if producer["transaction_start_offset"] is not None]
        assert (hanging["producer_id"], hanging["transaction_start_offset"]) == (5000, 1)
        wrong = run("transactions", "abort-hanging", "orders", "0", "--start-offset", "0", "--yes")
        assert "no open transaction begins at offset 0 of orders-0" in wrong.stderr
        assert "one of them" in run("transactions", "abort-hanging", "orders", "0", "--yes").stderr
        aborted = run("transactions", "abort-hanging", "orders", "0", "--start-offset", "1", "--yes")
        assert aborted.stdout == "aborted the transaction of producer 5000 on orders-0\n"
        assert run(*read).stdout.split() == ["before", "after"]
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("describe", "missing"), "there is no transactional id 'missing'"),
        (("terminate", "missing", "--yes"), "there is no transactional id 'missing'"),
        (("abort", "missing", "--yes"), "there is no transactional id 'missing'"),
        (("producers", "missing", "0"), "UNKNOWN_TOPIC_OR_PARTITION (3)"),
        (("list", "--state", "Ended"), "'Ended' is not one of"),
    ],
)
def test_errors_about_a_transaction_are_reported(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("transactions", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr


# Groups


def test_a_group_goes_on_where_it_committed(run: Run, unique: Unique) -> None:
    topic, group = unique("group"), unique("group")
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, input="1\n2\n3\n")
    first = run("consume", topic, "--group", group, "--from-beginning", "--max-records", "2")
    assert first.stdout == "1\n2\n"
    (described,) = json.loads(run("groups", "describe", group, "--json").stdout)
    assert (described["committed_offset"], described["lag"]) == (2, 1)
    assert run("consume", topic, "--group", group, "--max-records", "1").stdout == "3\n"
    reset = json.loads(run("groups", "reset-offsets", group, topic, "--to", "earliest", "--json").stdout)
    assert reset == [{"topic": topic, "partition": 0, "offset": 0, "before": 3}]
    assert run("consume", topic, "--group", group, "--max-records", "1").stdout == "1\n"
    assert group in run("groups", "list").stdout
    assert run("groups", "delete", group, "--yes").stdout == f"deleted {group}\n"
    assert f"there is no group '{group}'" in run("groups", "describe", group).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_member_commits_and_leaves(
    broker: BrokerProcess, run: Run, unique: Unique, number: signal.Signals
) -> None:
    topic, group = unique("stopped"), unique("stopped")
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, input="1\n2\n")
    command = [sys.executable, "-m", "fencepost", "consume", topic, "--group", group, "--from-beginning"]
    with subprocess.Popen(
        [*command, "--bootstrap", broker.bootstrap], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as member:
        assert member.stdout is not None
        assert [member.stdout.readline(), member.stdout.readline()] == ["1\n", "2\n"]
        for refused in (("reset-offsets", group, topic, "--to", "earliest"), ("delete", group, "--yes")):
            assert f"group '{group}' has members; stop them" in run("groups", *refused).stderr
        os.kill(member.pid, number)
        _, said = member.communicate(timeout=60)
    assert said == "2 records read\n"
    assert member.returncode == 128 + number
    (described,) = json.loads(run("groups", "describe", group, "--json").stdout)
    assert described["committed_offset"] == 2
    assert run("groups", "describe", group).stdout.startswith(f"{group}: classic group, Empty, 0 members\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_transaction_is_aborted(
    broker: BrokerProcess, run: Run, unique: Unique, number: signal.Signals
) -> None:
    topic, transactional_id = unique("interrupted"), unique("interrupted")
    run("topics", "create", topic)
    command = [sys.executable, "-m", "fencepost", "produce", topic, "--transactional-id", transactional_id]
    with subprocess.Popen(
        [*command, "--transaction-size", "2", "--bootstrap", broker.bootstrap],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write("1\n2\n3\n")
        writer.stdin.flush()
        deadline_s = time.monotonic() + 60
        while len(values(run, topic)) < 2:
            assert time.monotonic() < deadline_s
        # Two are committed, so what is open now is the transaction of the third.
        while '"Ongoing"' not in run("transactions", "describe", transactional_id, "--json").stdout:
            assert time.monotonic() < deadline_s
        os.kill(writer.pid, number)
        _, said = writer.communicate(timeout=60)
    assert said == ("2 records written and committed in 1 transaction; the last one was not complete and is aborted\n")
    assert writer.returncode == 128 + number
    until(lambda: state(run, transactional_id) == "CompleteAbort")
    assert sorted(values(run, topic)) == ["1", "2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_read_before_a_signal_is_written(
    broker: BrokerProcess, run: Run, unique: Unique, number: signal.Signals
) -> None:
    topic = unique("interrupted")
    run("topics", "create", topic)
    command = [sys.executable, "-m", "fencepost", "produce", topic, "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        writer.stdin.write("1\n2\n3\n")
        writer.stdin.flush()
        deadline_s = time.monotonic() + 60
        while len(values(run, topic)) < 3:
            assert time.monotonic() < deadline_s
        os.kill(writer.pid, number)
        _, said = writer.communicate(timeout=60)
    assert said == "3 records written\n"
    assert writer.returncode == 128 + number


@pytest.mark.parametrize(
    ("options", "text", "line"),
    [
        (("--json",), '{"value": "1"}\n{"value": "2"}\nno\n', "line 3: not JSON"),
        (("--json",), '{"value": "1"}\n{"value": "2"}\n{"value": "3", "partition": 9}\n', "line 3: topic"),
        (("--partition", "0"), "1\n" + "x" * 1_500_000 + "\n2\n", "line 2: the broker refused: MESSAGE_SIZE_TOO_LARGE"),
    ],
    ids=["a line that cannot be read", "a partition that is not there", "a record that is refused"],
)
def test_a_bad_line_is_reported_with_what_was_written(
    run: Run, unique: Unique, options: tuple[str, ...], text: str, line: str
) -> None:
    topic = unique("bad-line")
    run("topics", "create", topic)
    result = run("produce", topic, *options, input=text)
    assert result.exit_code == 1
    assert line in result.stderr
    # A producer gives up what follows a record that was refused: the numbers of its batches would have a gap.
    written = values(run, topic)
    assert sorted(written) in (["1"], ["1", "2"])
    assert f"({len(written)} record{'s' if len(written) > 1 else ''} written)\n" in result.stderr


def test_an_advertised_address_that_cannot_be_reached_is_named_within_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        advertised = f"PLAINTEXT://127.0.0.1:{silent.getsockname()[1]}"
        with BrokerProcess(tmp_path / "data", settings={"advertised.listeners": advertised}) as process:
            for command in (("produce", "a"), ("consume", "a"), ("topics", "list"), ("groups", "list")):
                started_s = time.monotonic()
                result = CliRunner().invoke(
                    fencepost, [*command, "--bootstrap", process.bootstrap], input="1\n", prog_name="fencepost"
                )
                assert time.monotonic() - started_s < AT_ONCE_S, command
                assert result.exit_code == 1, command
                assert f"{process.bootstrap} answers, but sends clients to an address where" in result.stderr
                silent_address = f"127.0.0.1:{silent_port(advertised)}"
                assert f"{silent_address} (it accepts connections but gave no answer" in result.stderr
            assert CliRunner().invoke(fencepost, ["ping", "--bootstrap", process.bootstrap]).exit_code == 0


def silent_port(advertised: str) -> str:
    return advertised.rpartition(":")[2]
