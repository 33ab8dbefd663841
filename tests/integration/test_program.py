"""The one file of a release that needs no Python: it serves, takes signals, and leaves nothing behind that lives."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from scripts.program.archive import names_in
from tests.support.broker_process import READY
from tests.support.conditions import PATIENCE_S, until
from tests.support.missing_tools import missing
from tests.support.program import program_of, release_files

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_200)]

MOST_BYTES = 60_000_000
C_LIBRARY = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")
LINKER = Path("/lib64/ld-linux-x86-64.so.2")


@pytest.fixture(scope="module")
def release() -> Path:
    return release_files()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without the variables and the programs of this Python, and with a cache for these tests."""
    return {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")), "PATH": "/nowhere"}


@pytest.fixture(scope="module")
def command(release: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program under another name, in another folder."""
    copied = tmp_path_factory.mktemp("anywhere") / "a broker"
    shutil.copy(program_of(release), copied)
    return [str(copied)]


class Serving:
    """`serve` of a program. output: all that it has written so far."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], data: str, log: Path, *more: str
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "serve", "--listener", "127.0.0.1:0", "--data-dir", data, *more],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def bootstrap(self) -> str:
        found = until(lambda: READY.search(self.output) or self.process.poll() is not None)
        assert isinstance(found, re.Match), self.output
        return f"{found['host']}:{found['port']}"


@contextlib.contextmanager
def serving(*arguments: object, **options: object) -> Iterator[Serving]:
    served = Serving(*arguments, **options)  # type: ignore[arg-type]
    try:
        yield served
    finally:
        served.process.kill()
        served.process.wait()


def commit(bootstrap: str, values: Sequence[str]) -> None:
    """Write the values in one transaction, after one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    producer.init_transactions(PATIENCE_S)
    for content, ends in (("aborted", producer.abort_transaction), (None, producer.commit_transaction)):
        producer.begin_transaction()
        for value in [content] if content else values:
            producer.produce("orders", value)
        producer.flush()
        ends(PATIENCE_S)


def committed(bootstrap: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
        return found
    finally:
        consumer.close()


def children_of(process_id: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == process_id:
                found.append(int(path.parent.name))
    return found


def lives(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_sums_and_a_list_of_parts_cover_the_program(release: Path) -> None:
    program = program_of(release)
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    assert sums[program.name] == hashlib.sha256(program.read_bytes()).hexdigest()
    assert sums.keys() == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    parts = json.loads((release / f"{program.name}.cdx.json").read_text())["components"]
    versions = {part["name"]: part["version"] for part in parts}
    assert versions["cpython"] == sys.version.split()[0]
    assert {"uvloop", "kafka-python", "cryptography", "asyncpg", "starlette"} <= versions.keys()
    described = " ".join(part.get("description", "") for part in parts)
    for name in names_in(program):
        if re.fullmatch(r"lib/lib(?!python)[^/]+", name):
            assert name.removeprefix("lib/") in described


def test_it_is_small_and_has_no_part_of_a_test_or_of_this_machine(release: Path) -> None:
    program = program_of(release)
    assert program.stat().st_size < MOST_BYTES
    names = names_in(program)
    assert [name for name in names if "/test/" in name or "/tests/" in name or name.endswith("direct_url.json")] == []


def test_commands_answer_and_give_their_exit_codes(command: list[str], environment: dict[str, str]) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    assert re.fullmatch(r"fencepost, version \d+\.\d+\.\d+\n", run("--version").stdout)
    names = re.findall(r"^  ([a-z-]+)  ", run("--help").stdout, re.MULTILINE)
    assert {"serve", "console", "cluster", "version"} <= set(names)
    for name in names:
        shown = run(name, "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), name
    assert run("serve", "--listener", "nowhere").returncode == 2
    refused = run("soak", "--minutes", "1")
    assert refused.returncode == 2
    assert re.search(r"needs \w+, which is not installed", refused.stderr)


def test_it_serves_transactions_and_ends_in_order_at_sigterm(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    with serving(command, environment, data, tmp_path / "log") as served:
        commit(served.bootstrap(), ["3 apples", "1 melon"])
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0
        assert "stopped" in served.output
    with serving(command, environment, data, tmp_path / "again") as served:
        assert committed(served.bootstrap(), 2) == ["3 apples", "1 melon"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_no_process_of_several_outlives_the_first(
    command: list[str], environment: dict[str, str], tmp_path: Path, end: signal.Signals
) -> None:
    two = ("--processes", "2")
    with serving(command, environment, str(tmp_path / "data"), tmp_path / "log", *two) as served:
        commit(served.bootstrap(), ["3 apples"])
        children = children_of(served.process.pid)
        assert len(children) == 2
        served.process.send_signal(end)
        assert served.process.wait(PATIENCE_S) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
        until(lambda: not any(map(lives, children)))


def test_nothing_is_left_in_temporary_folders_by_kill_9(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with serving(command, environment | {"TMPDIR": str(temporary)}, str(tmp_path / "data"), tmp_path / "log") as served:
        served.bootstrap()
        served.process.kill()
        served.process.wait()
    assert list(temporary.iterdir()) == []
    assert len([path for path in Path(environment["XDG_CACHE_HOME"], "fencepost").iterdir() if path.is_dir()]) == 1


@pytest.mark.long
def test_it_starts_at_most_half_as_fast_as_an_installed_one(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    installed = [sys.executable, "-m", "fencepost"]
    bytecode_kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start_s(which: list[str], number: int) -> float:
        data, log = str(tmp_path / f"data{number}"), tmp_path / f"log{number}"
        given = environment if which is command else bytecode_kept
        began = time.perf_counter()
        with serving(which, given, data, log) as served:
            until(lambda: READY.search(served.output), timeout_s=PATIENCE_S)
            bootstrap = served.bootstrap()
            listed = [sys.executable, "-m", "fencepost", "ping", "--bootstrap", bootstrap]
            took = time.perf_counter() - began
            subprocess.run(listed, check=True, capture_output=True)
            return took

    start_s(command, 0), start_s(installed, 1)
    pairs = [(start_s(command, 2 + 2 * turn), start_s(installed, 3 + 2 * turn)) for turn in range(10)]
    program_s, installed_s = (statistics.median(each) for each in zip(*pairs, strict=True))
    assert program_s < 2 * installed_s, f"{program_s:.2f} s, and {installed_s:.2f} s installed"


@pytest.mark.long
def test_it_serves_in_an_empty_root_file_system(release: Path, tmp_path: Path) -> None:
    """With the C library and the program alone: no shell, no /tmp, no /proc, no variable."""
    if os.geteuid() != 0:
        missing("another root takes root")
    if not LINKER.exists():
        missing("there is no linker of glibc for x86-64")
    root = tmp_path / "root"
    libraries = root / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (root / "lib64").mkdir()
    shutil.copy(LINKER, root / "lib64")
    for name in C_LIBRARY:
        shutil.copy(Path("/lib/x86_64-linux-gnu", name).resolve(), libraries / name)
    shutil.copy(program_of(release), root / "fencepost")
    command = [shutil.which("chroot") or "/usr/sbin/chroot", str(root), "/fencepost"]
    with serving(command, {}, "/data", tmp_path / "log") as served:
        commit(served.bootstrap(), ["3 apples"])
        assert committed(served.bootstrap(), 1) == ["3 apples"]
        listed = [*command, "topics", "list", "--bootstrap", served.bootstrap()]
        assert "orders" in subprocess.run(listed, env={}, check=True, capture_output=True, text=True).stdout
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0
