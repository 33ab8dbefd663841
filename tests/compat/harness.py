"""Runs programs written with real clients against a broker process, and against Apache Kafka for comparison.

README.md beside this file says what a client is and what the lines between harness and program mean.
"""

from __future__ import annotations

import collections
import fcntl
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compat.secured import Security

ROOT = Path(__file__).resolve().parents[2]
CLIENTS_FOLDER = ROOT / "tests" / "compat"
CACHE = ROOT / ".cache" / "compat"
BUILD_TIMEOUT_S = 900
RUN_TIMEOUT_S = 1_200
KNOWN_TIMEOUT_S = 30.0
SECURED = "-secured"
LISTS = {"passes.txt", "secured.txt", "one-process.txt", "one-machine.txt"}
"""What a program is not built from."""


class BuildError(RuntimeError):
    """A client's program could not be built; carries what the toolchain wrote."""


class NotHereError(RuntimeError):
    """A client cannot be had on this machine, which says nothing about the broker; the message is for a skipped test.

    A tool is missing, a registry cannot be reached, or the build would take longer than it may.
    """


@dataclass(frozen=True)
class Client:
    """A folder below tests/compat and how its program is built.

    name:            the folder's name.
    tools:           executables that must be on PATH to build and run it.
    build:           returns the command that runs the program, building it into .cache/compat when it is not there;
                     raises BuildError and NotHereError. The command runs with the checkout as its working directory.
    broker_settings: what its broker is started with on top of COMMON_SETTINGS, under Kafka's names.
    is_long:         it is only run by `./scripts/test --everything` and when it is named.
    has_long_tests:  its long checks are run by `./scripts/test --everything`; those of a secured broker always are.
    is_secured:      its broker asks for certificates, passwords or tokens, and has ACLs; the program makes its checks
                     of that, which are listed in `secured.txt`.
    """

    name: str
    tools: tuple[str, ...]
    build: Callable[[Client], Sequence[str]]
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    is_long: bool = False
    has_long_tests: bool = False
    is_secured: bool = False

    def secured(self) -> Client:
        """The same program with its checks of a secured broker."""
        return replace(self, name=f"{self.name}{SECURED}", is_secured=True)

    @property
    def program(self) -> str:
        """The name of the folder of its sources."""
        return self.name.removesuffix(SECURED) if self.is_secured else self.name

    @property
    def folder(self) -> Path:
        return CLIENTS_FOLDER / self.program

    @property
    def cache(self) -> Path:
        return CACHE / self.program

    @property
    def list_of_checks(self) -> Path:
        return self.folder / ("secured.txt" if self.is_secured else "passes.txt")

    def command(self) -> Sequence[str]:
        """The command that runs the program, which is built when it must be. Raises BuildError, NotHereError."""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if missing:
            raise NotHereError(f"{self.name} is left out: it needs {', '.join(missing)} on PATH")
        return self.build(self)

    def known_checks(self) -> list[str]:
        """The checks of its list, which may have comments."""
        return _checks_in(self.list_of_checks.read_text())

    def left_out(self, *, is_of_machines: bool) -> list[str]:
        """The checks that cannot be made against a broker of several nodes, from lists in its folder, if there are any.

        is_of_machines: whether the nodes are machines of their own, and not processes of one.
        """
        names = ["one-process.txt", *(["one-machine.txt"] if is_of_machines else [])]
        lists = [] if self.is_secured else [self.folder / name for name in names]
        return [check for listed in lists if listed.exists() for check in _checks_in(listed.read_text())]

    def quick_checks(self) -> list[str]:
        """Those that every test run makes: the ones above the line `# long` of its list, or all without it."""
        return _checks_in(self.list_of_checks.read_text().split("\n# long", 1)[0])


def _checks_in(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@dataclass(frozen=True)
class Report:
    """What became of one check. outcome: passed, failed or skipped; detail: why."""

    check: str
    outcome: str
    seconds: float = 0.0
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """A broker that programs are run against."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def security(self) -> Security | None:
        """How it is secured; None if it serves everybody."""
        ...

    def restart(self, how: str) -> str:
        """End it ("kill" or "terminate") and start it again. Returns "done", or why that cannot be done."""
        ...


# What both kinds of broker are started with, so that checks need not wait for what they are not about.
COMMON_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def run(
    client: Client,
    target: Target,
    *,
    run_name: str = "1",
    checks: Sequence[str] = (),
    on_report: Callable[[Report], None] = lambda _report: None,
) -> dict[str, Report]:
    """Build the program when needed and run it. Returns its reports by check, in their order.

    on_report: called with each report as it comes.

    Every check of `checks`, or of the client's list, has a report: those that the program did not come to have failed.
    Raises BuildError, NotHereError.
    """
    command = [*client.command(), target.bootstrap, run_name, *checks]
    reports: dict[str, Report] = {}
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    complaints: collections.deque[str] = collections.deque(maxlen=40)
    ending = "it ended"
    with _started(command, target.security.environment if target.security else {}) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        readers = [
            threading.Thread(target=_pass_on, args=(program.stdout, lines), daemon=True),
            threading.Thread(target=complaints.extend, args=(program.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                program.kill()
                ending = f"it was ended after {RUN_TIMEOUT_S} s"
                break
            if line is None:
                break
            message = _parsed(line)
            if message is None:
                complaints.append(line)
            elif "ask" in message:
                answer = _answer(target, message["ask"])
                # A program that gave up meanwhile hears nothing any more; its reports say what was missing.
                with suppress(BrokenPipeError):
                    program.stdin.write(f"{answer}\n")
                    program.stdin.flush()
            else:
                report = Report(**message)
                reports[report.check] = report
                on_report(report)
        program.wait()
        for reader in readers:
            reader.join()
    for check in checks or client.known_checks():
        if check not in reports:
            detail = f"no report of it: {ending} with {program.returncode}\n" + "".join(complaints)
            reports[check] = Report(check, "failed", detail=detail)
            on_report(reports[check])
    return reports


def _answer(target: Target, asked: str) -> str:
    if asked in {"kill", "terminate"}:
        return target.restart(asked)
    what, *about = asked.split()
    if what == "known":
        return wait_until_known(target.bootstrap, about[0], *map(int, about[1:]))
    if target.security is None:
        return f"a broker that serves everybody cannot do this: {asked}"
    return target.security.answer(asked)


def wait_until_known(bootstrap: str, topic: str, partition_count: int = 1) -> str:
    """Wait until each node of a broker that serves everybody knows all partitions of a topic, and they are led.

    partition_count: how many it has at least.

    Returns "done", or why that is not so.
    """
    deadline = time.monotonic() + KNOWN_TIMEOUT_S
    for address in bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        while not _is_led(admin, topic, partition_count):
            if time.monotonic() > deadline:
                return f"{address} does not know the topic {topic}, or nobody leads it"
            time.sleep(0.02)
    return "done"


def _is_led(admin: AdminClient, topic: str, partition_count: int) -> bool:
    partitions = admin.list_topics(topic, timeout=KNOWN_TIMEOUT_S).topics[topic].partitions
    asked = {ck.TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    try:
        offsets = [found.result(KNOWN_TIMEOUT_S) for found in admin.list_offsets(asked).values()] if asked else []
    except ck.KafkaException:
        return False
    return len(offsets) >= partition_count


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that does not outlive the block, nor does what it started, nor their temporary files."""
    with tempfile.TemporaryDirectory(prefix="fencepost-compat-", ignore_cleanup_errors=True) as scratch:
        temporary_files = {"TMPDIR": scratch, "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
        program = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **temporary_files, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield program
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                program.communicate()


def _pass_on(stream: Iterator[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _parsed(line: str) -> dict[str, Any] | None:
    """The message in a line; None for whatever else a client's library may print."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and ("ask" in message or "check" in message) else None


def differences(ours: Mapping[str, Report], theirs: Mapping[str, Report]) -> list[str]:
    """One line for each check that ended differently and each fact that is not the same; skipped ones are left out."""
    found = []
    for check, their_report in theirs.items():
        our_report = ours.get(check)
        if our_report is None or "skipped" in {our_report.outcome, their_report.outcome}:
            continue
        if our_report.outcome != their_report.outcome:
            found.append(f"{check}: {our_report.outcome} here, {their_report.outcome} there")
        for name in sorted({*our_report.facts, *their_report.facts}):
            here, there = our_report.facts.get(name), their_report.facts.get(name)
            if here != there:
                found.append(f"{check}: {name} is {json.dumps(here)} here, {json.dumps(there)} there")
    return found


def fingerprint(*sources: Path) -> str:
    """Changes when one of the files does, or a file below one of the folders; decides that a program is built again."""
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and path.name not in LISTS and path.suffix not in {".md", ".pyc"}:
                digest.update(f"{path.relative_to(source.parent)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def build_once(
    client: Client, built_from: Sequence[Path], build: Callable[[Path], None], *, built_with: str = ""
) -> None:
    """Call `build` with the client's cache folder unless that was done for the same sources and with the same tools.

    built_with: names the versions of the tools, if what they make does not run with others.

    Two processes do not build the same client at once. Raises BuildError, NotHereError.
    """
    wanted = fingerprint(*built_from) + built_with
    client.cache.mkdir(parents=True, exist_ok=True)
    stamp = client.cache / ".built-from"
    with (client.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        build(client.cache)
        stamp.write_text(wanted)


def fetch(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run the step of a build that asks a registry. Raises NotHereError with its output."""
    try:
        call(command, cwd=cwd, environment=environment)
    except BuildError as failure:
        raise NotHereError(f"what the program is made of cannot be fetched: {failure}") from failure


def call(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    limit_s: float = BUILD_TIMEOUT_S,
) -> None:
    """Run a step of a build, politely.

    limit_s: how long it may take; after that the client is left out.
    Raises BuildError with the step's output, and NotHereError when the time is up.
    """
    with tempfile.TemporaryFile("w+") as output:
        step = subprocess.Popen(
            ["nice", *command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = step.wait(limit_s)
        except subprocess.TimeoutExpired as late:
            raise NotHereError(f"{' '.join(command)} takes longer than {limit_s:.0f} s") from late
        finally:
            if step.poll() is None:  # what it started, compilers for instance, ends with it
                os.killpg(step.pid, signal.SIGKILL)
                step.wait()
        if code != 0:
            output.seek(0)
            raise BuildError(f"{' '.join(command)} ended with {code}:\n{output.read()[-8_000:]}")
