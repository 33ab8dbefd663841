"""The environment of a checkout: small for serving, completed for other purposes, in any order."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.locks import ALONE, EVERYTHING, PARTS, ROOT, pinned_on_linux, pins, requirements

SOURCES = ("scripts", "requirements", "requirements.lock", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
PACKAGES = ("fencepost",)

# Stands for python and pip: remembers what it was asked to install.
FAKE_PYTHON = """#!/usr/bin/env bash
set -eu
case "$*" in
    "-c "*) exit 0 ;;
    "-m venv --clear "*)
        rm -rf "$4"
        mkdir -p "$4/bin"
        cp "$0" "$4/bin/python"
        echo venv >> "$LOG" ;;
    "-m pip install "*)
        if [ -n "${FAILING:-}" ]; then echo "no route to the registry" >&2; exit 1; fi
        sleep 0.2
        echo "$*" | grep -oE '[a-z-]+\\.lock|--editable' >> "$LOG"
        case "$*" in *--editable*)
            printf '#!/bin/sh\\necho fencepost "$@"\\n' > "$(dirname "$0")/fencepost"
            chmod +x "$(dirname "$0")/fencepost" ;;
        esac ;;
    "-m pip uninstall "*) ;;
    *) echo "python $*" ;;
esac
"""


def copied(folder: Path, *names: str) -> Path:
    for name in names:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


class Checkout:
    """A checkout whose python only remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = copied(folder, *SOURCES)
        self.log = folder / "log"
        self.log.touch()
        python = folder / "fake" / "python3.11"
        python.parent.mkdir()
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)
        java = folder / "fake" / "java"
        java.write_text("#!/bin/sh\n")
        java.chmod(0o755)
        self.environment = {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "FENCEPOST_PYTHON": str(python),
            "LOG": str(self.log),
        }

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # ./scripts/test with an argument runs pytest of the environment, which is not there.
        arguments = ["tests"] if script == "test" else []
        return subprocess.run(
            [str(self.folder / "scripts" / script), *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def installed(self) -> list[str]:
        """What was made and installed since the last call."""
        lines = self.log.read_text().split()
        self.log.write_text("")
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_serving_installs_what_serving_needs_once(checkout: Checkout) -> None:
    first = checkout.run("fencepost")
    assert first.stdout == "fencepost\n"
    assert re.fullmatch(
        r"fencepost: setting up \.venv from requirements/serve\.lock \(once\)\nfencepost: set up in \d+ s\n",
        first.stderr,
    )
    assert checkout.installed() == ["venv", "serve.lock", "--editable"]
    assert checkout.run("fencepost").stderr == ""
    assert checkout.installed() == []


LOCK_OF = {"fencepost": "serve.lock", "demo": "demo.lock", "check": "unit.lock", "test": "requirements.lock"}


@pytest.mark.parametrize(
    "order",
    [
        ("fencepost", "demo", "test"),
        ("demo", "fencepost", "test"),
        ("fencepost", "test"),
        ("demo", "test", "demo"),
        ("check", "fencepost", "test", "check"),
    ],
    ids=" ".join,
)
def test_each_purpose_adds_to_the_others_in_any_order(checkout: Checkout, order: tuple[str, ...]) -> None:
    checkout.run(order[0])
    assert checkout.installed() == ["venv", LOCK_OF[order[0]], "--editable"]
    for script in dict.fromkeys(order[1:]):
        checkout.run(script)
        assert checkout.installed() == ([LOCK_OF[script]] if script != order[0] else [])


def test_the_environment_for_tests_serves_every_purpose(checkout: Checkout) -> None:
    checkout.run("test")
    checkout.installed()
    for script in ("fencepost", "demo", "check"):
        checkout.run(script)
    assert checkout.installed() == []


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_lock_makes_the_environment_anew(checkout: Checkout, name: str) -> None:
    checkout.run("test")
    checkout.installed()
    with (checkout.folder / name).open("a") as file:
        file.write("# changed\n")
    checkout.run("fencepost")
    assert checkout.installed() == ["venv", "serve.lock", "--editable"]
    checkout.run("test")
    assert checkout.installed() == ["requirements.lock"]


def test_a_failed_installation_is_reported_and_retried(checkout: Checkout) -> None:
    failed = checkout.run("fencepost", FAILING="yes")
    assert failed.returncode == 1
    assert "no route to the registry" in failed.stderr
    assert failed.stderr.endswith("fencepost: the environment could not be set up; see pip's message above\n")
    checkout.installed()
    assert checkout.run("fencepost").returncode == 0
    assert checkout.installed() == ["serve.lock", "--editable"]


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock, scripts do not wait for each other")
def test_scripts_that_start_together_make_one_environment(checkout: Checkout) -> None:
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(checkout.run, ["fencepost", "fencepost", "fencepost"]))
    assert [result.returncode for result in results] == [0, 0, 0]
    assert checkout.installed() == ["venv", "serve.lock", "--editable"]


# The lock files


@pytest.mark.parametrize("part", [part for part in PARTS if part not in ALONE])
def test_a_part_has_the_versions_and_hashes_of_the_whole(part: str) -> None:
    whole = requirements(EVERYTHING)
    by_pin = {requirement.partition(";")[0].strip(): hashes for requirement, hashes in whole.items()}
    for requirement, hashes in requirements(PARTS[part]).items():
        assert hashes
        assert by_pin[requirement.partition(";")[0].strip()] == hashes


@pytest.mark.parametrize("part", ALONE)
def test_what_a_release_and_the_site_are_built_with_is_locked_with_hashes_beside_the_whole(part: str) -> None:
    locked = requirements(PARTS[part])
    assert all(locked.values())
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert {normal(Requirement(text).name) for text in groups[part]} <= {normal(name) for name in pins(part)}


@pytest.mark.parametrize("part", ["build", "serve", "demo", "unit"])
def test_a_part_has_all_that_its_packages_need(part: str) -> None:
    locked = pins(part)
    for name in locked:
        try:
            if version(name) != locked[name]:
                continue  # for another version of Python
        except PackageNotFoundError:
            continue  # for another platform
        for text in requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert normal(requirement.name) in {normal(one) for one in locked}, f"{name} needs {requirement}"


def test_what_a_check_needs_takes_less_than_150_megabytes() -> None:
    blocks_kib = 10_000  # pip and the folders
    for name in pins("unit"):
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue  # for another platform
        paths = [file.locate() for file in files if file.suffix != ".pyc"]
        blocks_kib += sum(-(-os.stat(path).st_size // 4096) * 4 for path in paths if os.path.exists(path))
    assert 100_000 < blocks_kib < 150_000


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_parts_have_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups, dependencies = project["dependency-groups"], project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]

    def names(texts: list[str]) -> set[str]:
        return {normal(Requirement(text).name) for text in texts} - {"fencepost"}

    assert names(dependencies) | names(groups["build"]) <= set(pins("serve"))
    assert names(dependencies) | names(extras["demo"]) | names(extras["spark"]) <= set(pins("demo"))
    of_others = {"cffi", "pycparser", "psycopg-binary", "typing-extensions"}
    assert names(groups["unit"]) | names(groups["build"]) <= set(pins("unit"))
    assert names(groups["broker-image"]) == pinned_on_linux("broker-image") - of_others
    assert names(groups["pipeline-image"]) == pinned_on_linux("pipeline-image")
    assert names(groups["broker-image"]) < names(dependencies) | {
        name for extra in ("check-back", "http", "security") for name in names(extras[extra])
    }


def test_the_locked_spark_is_one_that_the_extra_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = map(Requirement, project["project"]["optional-dependencies"]["spark"])
    (spark,) = (requirement for requirement in extra if requirement.name == "pyspark")
    assert pins("demo")["pyspark"] in spark.specifier
    assert "4.4.0" not in spark.specifier


# The real thing


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_fresh_checkout_commits_its_first_transaction_within_a_minute_and_takes_less_than_150_megabytes(
    tmp_path: Path,
) -> None:
    checkout = copied(tmp_path, *SOURCES, *PACKAGES)
    command = str(checkout / "scripts" / "fencepost")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FENCEPOST_", "PYTHON"))}
    environment["FENCEPOST_BOOTSTRAP"] = address
    started_s = time.monotonic()
    with subprocess.Popen(
        [command, "serve", "--listener", address, "--data-dir", str(tmp_path / "data")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            assert address in broker.stdout.readline()
            written = subprocess.run(
                [command, "produce", "orders", "--transactional-id", "till-1"],
                input="1\n2\n",
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=240,
            )
            assert "committed in 1 transaction" in written.stderr
            # On a machine with more to do than processors, everything takes longer.
            crowding = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            assert time.monotonic() - started_s < 60 * crowding
            described = subprocess.run(
                [command, "transactions", "describe", "till-1", "--json"],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            assert json.loads(described.stdout)[0]["state"] == "CompleteCommit"
        finally:
            broker.terminate()
    used = subprocess.run(["du", "-sk", str(checkout / ".venv")], capture_output=True, text=True, check=True).stdout
    assert int(used.split()[0]) < 150_000
