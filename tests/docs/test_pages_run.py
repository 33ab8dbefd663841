"""The commands and programs of README and docs do what the pages say, as a reader runs them, against a real broker."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.soak.free_port import free_ports
from tests.compat.clients import CLIENTS
from tests.compat.harness import NotHereError
from tests.docs.code_blocks import DOCS, ROOT, Block, blocks, pages, prints, script
from tests.support.broker_process import BrokerProcess
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

LIMIT_S = 480
MOST_PORTS = 4
"""Of a cluster for a trial: three brokers, and the object store."""
PYTHON_PAGES = (
    "first-steps",
    "clients/kafka-python",
    "clients/confluent-kafka",
    "clients/aiokafka",
    "monitoring",
    "check-back",
    "console",
    "security",
    "processes",
    "cluster",
    "testing-other-languages",
)
OTHER_LANGUAGES = {
    "java": ("java", "mvn"),
    "flink": ("java", "mvn"),
    "go": ("go",),
    "node": ("node", "npm"),
    "kcat": (),
}
"""Pages about clients in other languages, with the tools that they need."""
REASONS = (
    "needs Apache Kafka",
    "needs Docker",
    "needs a cluster",
    "needs Kubernetes",
    "needs a checkout",
    "needs a release",
    "needs a schema registry",
    "needs a secured broker",
    "needs an editor",
    "needs root",
    "needs systemd",
    "the file system decides",
)
"""Why a block may not be run."""
PIP = """\
#!{python}
# In place of pip: what a page has its reader install is installed in the environment of the tests.
import importlib.metadata, re, sys
for name in sys.argv[2:]:
    if not name.startswith("-") and not name.endswith(".whl"):
        importlib.metadata.distribution(re.split(r"[\\[<>=]", name)[0])
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Callable[[Sequence[Block]], None]]:
    """Runs blocks in an empty folder, and compares what they print with what the page shows.

    `fencepost`, `python` and `pip` are those of the tests. Port 9092 becomes a free one. If no block starts a broker,
    one is running.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    # Not pytest's folder: PostgreSQL runs as a user of its own where the tests run as root.
    place = Path(tempfile.mkdtemp(prefix="fencepost-page-"))
    place.chmod(0o755)
    # A link to an interpreter would not find its environment.
    for name in ("python", "python3"):
        executable(tools / name, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    executable(tools / "fencepost", f'#!/bin/sh\nexec {sys.executable} -m fencepost "$@"\n')
    executable(tools / "pip", PIP.format(python=sys.executable))
    brokers: list[BrokerProcess] = []

    def run(of_page: Sequence[Block]) -> None:
        text = script(list(of_page))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if "\nstart_broker " in text:
            port = free_ports(MOST_PORTS)
            if "\nlisteners=" not in text:
                environment |= {"FENCEPOST_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}"}
        else:
            brokers.append(BrokerProcess(tmp_path / "data"))
            port = brokers[-1].start().port
            environment["BROKER_PID"] = str(brokers[-1].process_id)
        environment |= {"FENCEPOST_BOOTSTRAP": f"127.0.0.1:{port}", "PATH": f"{tools}:{os.environ['PATH']}"}
        text = re.sub(r"\b(127\.0\.0\.1|localhost):9092\b", f"127.0.0.1:{port}", text)
        text = text.replace("--port 9092", f"--port {port}")
        finished = subprocess.run(
            ["bash", "-c", text],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        logs = "".join(path.read_text() for path in sorted(place.glob("broker.*")))
        outputs = {int(path.name.partition("-")[2]): path.read_text() for path in place.glob("output-*")}
        said = f"{outputs}\n{finished.stdout}{finished.stderr}\n{logs}"
        assert finished.returncode == 0, said
        for number, block in enumerate(of_page):
            if block.output is not None and block.not_run is None:
                printed = outputs[number].replace(str(port), "9092")
                assert prints(block.output, printed), f"line {block.line} printed:\n{printed}\n{said}"

    yield run
    for broker in brokers:
        broker.kill()
    shutil.rmtree(place)


def executable(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def blocks_of(path: Path) -> list[Block]:
    return blocks(path.read_text(encoding="utf-8"))


def needs_spark(block: Block) -> bool:
    return "pyspark" in block.text


@pytest.mark.integration
def test_readme_does_what_it_says(reader: Callable[[Sequence[Block]], None]) -> None:
    reader([block for block in blocks_of(ROOT / "README.md") if not needs_spark(block)])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_readme_does_with_spark_what_it_says(reader: Callable[[Sequence[Block]], None]) -> None:
    of_page = blocks_of(ROOT / "README.md")
    assert any(needs_spark(block) for block in of_page)
    reader(of_page)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param("clients/spark", marks=pytest.mark.spark), pytest.param("spark", marks=pytest.mark.long)]
)
def test_a_page_about_spark_does_what_it_says(name: str, reader: Callable[[Sequence[Block]], None]) -> None:
    reader(blocks_of(DOCS / f"{name}.md"))


@pytest.mark.integration
@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_a_page_does_what_it_says(name: str, reader: Callable[[Sequence[Block]], None]) -> None:
    reader(blocks_of(DOCS / f"{name}.md"))


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_broker_moves_through_all_forms_as_the_page_says(
    reader: Callable[[Sequence[Block]], None], tmp_path: Path
) -> None:
    with postgres_server(is_durable=True) as database, object_server(tmp_path / "objects") as objects:
        url, place = Machines(database.cluster_url(), objects.make_bucket(), tmp_path, 0).stores[1::2]
        stores = f"export FENCEPOST_CLUSTER_URL='{url}'\nexport FENCEPOST_CLUSTER_OBJECTS='{place}'\n"
        of_page = blocks_of(DOCS / "moving.md")
        named = [one for one in of_page if one.text.startswith("export FENCEPOST_CLUSTER_URL=")]
        assert len(named) == 1
        reader([replace(one, text=stores, not_run=None) if one in named else one for one in of_page])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name == "flink" else pytest.mark.compat) for name in OTHER_LANGUAGES],
)
def test_the_page_about_a_client_in_another_language_does_what_it_says(
    name: str, reader: Callable[[Sequence[Block]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in OTHER_LANGUAGES[name]:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on PATH")
    if name == "kcat" and shutil.which("kcat") is None:
        monkeypatch.setenv("PATH", kcat_path())
    reader(blocks_of(DOCS / "clients" / f"{name}.md"))


def kcat_path() -> str:
    """A PATH with the kcat that the tests of clients unpack."""
    try:
        command = CLIENTS["kcat"].build(CLIENTS["kcat"])
    except NotHereError as missing:
        pytest.skip(str(missing))
    return next(argument.partition("=")[2] for argument in command if argument.startswith("PATH="))


RUN_ELSEWHERE = {
    "docs/command-line.md",
    "docs/history.md",
    "docs/architecture.md",
    "docs/changing.md",
    "docs/backup.md",
    "docs/moving-from-kafka.md",
    "docs/testing.md",
    "docs/testing-migration.md",
    "docs/two-phase.md",
    "docs/two-phase-operating.md",
}
"""Pages whose blocks other tests check, or that show no commands of a user."""
RUN_HERE = {
    "README.md",
    "docs/clients/spark.md",
    "docs/moving.md",
    "docs/spark.md",
    *(f"docs/{name}.md" for name in PYTHON_PAGES),
    *(f"docs/clients/{name}.md" for name in OTHER_LANGUAGES),
}


def test_every_block_with_commands_is_run_or_says_why_not() -> None:
    untested = []
    for path in pages():
        name = str(path.relative_to(ROOT))
        for block in blocks_of(path):
            is_left = name not in RUN_HERE | RUN_ELSEWHERE and block.language in ("sh", "python")
            if block.not_run is not None:
                assert block.not_run.startswith(REASONS), f"{name}:{block.line}: {block.not_run}"
            elif is_left:
                untested.append(f"{name}:{block.line}")
    assert not untested


def test_a_block_that_prints_something_else_is_noticed() -> None:
    page = "```sh\n# start\nseq 2\n```\n\n```text\n1\n2\n```\n<!-- not run: needs root -->\n```sh\nrm x\n```\n"
    first, second = blocks(page)
    assert first.output == "1\n2\n"
    assert second.not_run == "needs root"
    assert prints("1\n…\n3", "1  \n2\n3\n")
    assert not prints("1\n2", "1\n3")
    assert "rm x" not in script([first, second])
