"""The harness hears what programs say, answers what they ask, and misses what they did not do."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.builds import build_node
from tests.compat.clients import CLIENTS, in_order_of_clients
from tests.compat.harness import (
    BuildError,
    Client,
    NotHereError,
    Report,
    build_once,
    call,
    differences,
    fingerprint,
    run,
)
from tests.compat.secured import Security

PROGRAM = """
import json, sys
print("chatter of a library")
print(json.dumps({"ask": "kill"}), flush=True)
answer = sys.stdin.readline().strip()
print(json.dumps({"check": "restarts", "outcome": "passed", "facts": {"answer": answer, "arguments": sys.argv[1:]}}))
print("last words", file=sys.stderr)
sys.exit(3)
"""


class FakeTarget:
    """A broker that only counts."""

    bootstrap = "127.0.0.1:1"
    security = None

    def __init__(self) -> None:
        self.restarts: list[str] = []

    def restart(self, how: str) -> str:
        self.restarts.append(how)
        return "done"


def client_of(program: Path, tools: tuple[str, ...] = ()) -> Client:
    def build(_client: Client) -> Sequence[str]:
        return [sys.executable, str(program)]

    return Client("fake", tools=tools, build=build)


def test_a_program_is_heard_and_answered(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    target = FakeTarget()
    reports = run(client_of(program), target, run_name="7", checks=["restarts", "other"])
    assert target.restarts == ["kill"]
    assert reports["restarts"].outcome == "passed"
    assert reports["restarts"].facts == {"answer": "done", "arguments": ["127.0.0.1:1", "7", "restarts", "other"]}


def test_a_check_without_a_report_has_failed_and_shows_the_programs_output(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    missing = run(client_of(program), FakeTarget(), checks=["restarts", "other"])["other"]
    assert missing.outcome == "failed"
    assert "ended with 3" in missing.detail
    assert "last words" in missing.detail
    assert "chatter of a library" in missing.detail


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(json.dumps({'check': 'starts', 'outcome': 'passed', 'facts': {'child': child.pid}}))\n"
    )
    child = run(client_of(program), FakeTarget(), checks=["starts"])["starts"].facts["child"]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _is_alive(child):
        time.sleep(0.01)
    assert not _is_alive(child)


def _is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_client_without_its_tools_is_not_here(tmp_path: Path) -> None:
    client = client_of(tmp_path / "program.py", tools=("no-such-compiler",))
    with pytest.raises(NotHereError, match="needs no-such-compiler on PATH"):
        client.command()


def test_a_build_that_fails_gives_the_reason_and_one_that_takes_too_long_skips_the_client(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no luck"):
        call([sys.executable, "-c", "raise SystemExit('no luck')"], cwd=tmp_path)
    with pytest.raises(NotHereError, match="takes longer"):
        call([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path, limit_s=0.2)


def test_a_program_is_built_again_when_a_source_changes_and_not_for_the_lists(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text("one")
    before = fingerprint(tmp_path)
    (tmp_path / "passes.txt").write_text("check")
    (tmp_path / "FINDINGS.md").write_text("nothing")
    assert fingerprint(tmp_path) == before
    (tmp_path / "main.go").write_text("two")
    assert fingerprint(tmp_path) != before


def test_a_program_is_built_again_with_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CACHE", tmp_path / "cache")
    built: list[str] = []
    for version in ("20", "20", "22"):
        build_once(client_of(tmp_path), [], lambda _: built.append(version), built_with=version)  # noqa: B023  # at once
    assert built == ["20", "22"]


def test_a_client_is_left_out_if_its_binary_is_neither_downloaded_nor_compiled_and_compiled_once_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npm is a script that writes down what it is asked, and fails to get a binary as long as a file says so."""
    monkeypatch.setattr(harness, "CLIENTS_FOLDER", tmp_path)
    monkeypatch.setattr(harness, "CACHE", tmp_path / "cache")
    tools, asked, broken = tmp_path / "tools", tmp_path / "asked", tmp_path / "broken"
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "package.json").write_text(json.dumps({"allowScripts": {"binding": True}}))
    (tmp_path / "fake" / "package-lock.json").write_text("{}")
    tools.mkdir()
    for name, script in {
        "node": "echo v20.1.0",
        "npm": f'echo "$1 $CKJS_LINKING" >>{asked}\n[ "$1" = ci ] || [ ! -e {broken} ] || {{ echo no g++; exit 1; }}',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    client = Client("fake", tools=("node", "npm"), build=build_node)
    broken.touch()
    with pytest.raises(NotHereError, match=r"neither downloaded nor compiled[^$]*no g\+\+"):
        client.command()
    broken.unlink()
    client.command()
    (tmp_path / "fake" / "main.mjs").write_text("the program has changed")
    assert client.command() == ["node", str(tmp_path / "cache" / "fake" / "main.mjs")]
    assert (tmp_path / "cache" / "fake" / "main.mjs").exists()
    assert asked.read_text().splitlines() == ["ci ", "rebuild dynamic"] * 2


def test_differences_are_other_outcomes_and_other_facts_of_checks_that_both_made() -> None:
    ours = {
        "same": Report("same", "passed", facts={"code": 3}),
        "fact": Report("fact", "passed", facts={"code": 3}),
        "outcome": Report("outcome", "failed"),
        "skipped": Report("skipped", "skipped"),
    }
    theirs = {
        "same": Report("same", "passed", seconds=9.0, facts={"code": 3}),
        "fact": Report("fact", "passed", facts={"code": 4}),
        "outcome": Report("outcome", "passed"),
        "skipped": Report("skipped", "passed"),
    }
    assert differences(ours, theirs) == [
        "fact: code is 3 here, 4 there",
        "outcome: failed here, passed there",
    ]


def test_a_secured_client_has_the_program_of_its_name_and_a_list_of_its_own(tmp_path: Path) -> None:
    alone = client_of(tmp_path / "program.py")
    client = alone.secured()
    assert (client.name, client.program, client.is_secured) == ("fake-secured", "fake", True)
    assert (client.folder, client.cache) == (alone.folder, alone.cache)
    assert client.list_of_checks == alone.folder / "secured.txt"


def test_a_program_hears_why_rights_cannot_be_changed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace('"kill"', '"allow User:alice READ topic orders"'))
    target = FakeTarget()
    reports = run(client_of(program), target, checks=["restarts"])
    assert target.restarts == []
    assert "cannot do this: allow User:alice READ topic orders" in reports["restarts"].facts["answer"]


def test_a_secured_broker_has_listeners_with_and_without_a_certificate_that_is_over(tmp_path: Path) -> None:
    ours, kafka = Security(tmp_path / "ours", is_kafka=False), Security(tmp_path / "kafka", is_kafka=True)
    only_kafka = {name for name in kafka.settings_of() if name not in ours.settings_of()}
    assert {"inter.broker.listener.name", "controller.quorum.voters"} <= only_kafka
    assert set(ours.settings_of()) <= set(kafka.settings_of())
    assert ours.environment["SECURED_EXPIRED"] == f"127.0.0.1:{ours.ports['EXPIRED']}"
    assert ours.config_file().stat().st_mode & 0o777 == 0o600
    assert ours.answer("forbid everything") == "nobody knows what 'forbid everything' means"


def test_the_tests_of_clients_come_in_the_order_in_which_their_programs_run() -> None:
    first, second, *_, last = CLIENTS
    tests = [(last, 1), ("", 2), (second, 3), (first, 4), (second, 5), ("", 6), (first, 7)]
    ordered = in_order_of_clients(tests, lambda test: test[0])
    assert ordered == [(first, 4), ("", 2), (first, 7), (second, 3), (second, 5), ("", 6), (last, 1)]
