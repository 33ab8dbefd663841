"""The plugin in pytest runs of their own, as in a user's project: options, reports, workers, loop scopes, costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fencepost import Broker

ROOT = Path(__file__).resolve().parents[2]


class Project:
    """A user's project with tests in one file, without plugins that take long to import and have no part in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.write(
            "pytest.ini",
            """
            [pytest]
            addopts = -p no:randomly -p no:cacheprovider -p no:hypothesispytest -p no:anyio -p no:timeout
            asyncio_default_fixture_loop_scope = function
            """,
        )

    def write(self, name: str, content: str) -> None:
        (self.directory / name).write_text(textwrap.dedent(content))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its tests; with the plugin as installed, or by name where the environment was made before it."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    def outcomes(self, *arguments: str) -> str:
        """The last line of a run, without its duration."""
        done = self.run(*arguments)
        lines = done.stdout.strip().splitlines()
        return re.sub(r"=+ ?| in [0-9.]+s.*", "", lines[-1]) if lines else done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_view_of_the_broker_is_in_the_report_of_a_failure(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        def test_it(fencepost):
            fencepost.produce("orders", "x")
            assert fencepost.records("orders") == []
        """,
    )
    done = project.run()
    assert "The broker's view" in done.stdout
    assert "topic orders-0: offsets 0 to 1" in done.stdout
    assert "1 failed" in done.stdout


def test_a_fault_that_never_fired_fails_the_test_at_its_end(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        def test_claims_too_much(fencepost):
            fencepost.fail("EndTxn", "NOT_COORDINATOR")

        def test_may(fencepost):
            fencepost.fail("EndTxn", "NOT_COORDINATOR", optional=True)

        def test_fails_for_another_reason(fencepost):
            fencepost.fail("EndTxn", "NOT_COORDINATOR")
            assert False
        """,
    )
    done = project.run()
    assert "fail('EndTxn', error='NOT_COORDINATOR') never fired" in done.stdout
    assert "1 failed, 2 passed, 1 error" in done.stdout


def test_a_plain_test_that_takes_the_broker_of_a_loop_fails_with_the_remedy(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest
        import pytest_asyncio

        def test_forgets_to_await(async_fencepost):
            async_fencepost.topic("orders")

        @pytest_asyncio.fixture
        async def topic(async_fencepost):
            return await async_fencepost.topic("orders")

        def test_of_a_fixture_that_awaits(topic):
            assert topic == "orders"

        @pytest.mark.asyncio
        async def test_awaits(async_fencepost):
            assert await async_fencepost.topic("orders") == "orders"
        """,
    )
    done = project.run()
    assert "async_fencepost is for tests of `async def`" in done.stdout
    assert "2 passed, 1 error" in done.stdout


def test_data_of_failed_tests_are_kept_on_demand(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import os

        def test_fails(fencepost):
            fencepost.produce("orders", "x")
            assert False

        def test_process(fencepost_process):
            fencepost_process.produce("orders", "x")
            assert False

        async def test_loop(async_fencepost):
            await async_fencepost.produce("orders", "x")
            assert False

        def test_passes(fencepost):
            fencepost.produce("orders", "x")
        """,
    )
    done = project.run("--fencepost-keep", "-o", "asyncio_mode=auto")
    kept = re.findall(r"^test_it\.py::(\w+): (.+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in kept] == ["test_fails", "test_process", "test_loop"], done.stdout
    assert len(re.findall(r"^E +assert False$", done.stdout, re.MULTILINE)) == 3, done.stdout
    for _, path in kept:
        with Broker(path) as broker:
            assert broker.topics() == {"orders": 1}, f"{path}\n{done.stdout}"
            assert [record.value for record in broker.records("orders")] == [b"x"]
    assert "data of failed tests" not in project.run("-o", "asyncio_mode=auto").stdout


def test_the_same_tests_run_against_another_broker_as_far_as_they_can(
    project: Project, fencepost_fresh: Broker
) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.parametrize("attempt", [1, 2])
        def test_records(fencepost, attempt):
            fencepost.topic("orders", partitions=2)
            fencepost.produce("orders", "x", partition=1)
            assert [record.value for record in fencepost.records("orders")] == [b"x"]

        def test_clock(fencepost):
            fencepost.advance(minutes=1)

        def test_fault(fencepost):
            fencepost.hold("EndTxn")

        def test_requests(fencepost):
            fencepost.requests()

        def test_crash(fencepost):
            fencepost.crash()

        def test_fresh(fencepost_fresh):
            pass

        def test_process(fencepost_process):
            pass

        async def test_loop(async_fencepost):
            pass
        """,
    )
    fencepost_fresh.topic("not-ours")
    url = f"--fencepost-url={fencepost_fresh.bootstrap_servers}"
    done = project.run(url, "-rs", "-o", "asyncio_mode=auto")
    assert "2 passed, 7 skipped" in done.stdout, done.stdout
    assert "advance needs a broker of Fencepost's: run the test without --fencepost-url" in done.stdout
    assert fencepost_fresh.topics() == {"not-ours": 1}


def test_a_failure_beside_another_kafka_shows_what_that_has(project: Project, fencepost_fresh: Broker) -> None:
    project.write(
        "test_it.py",
        """
        def test_it(fencepost):
            fencepost.topic("orders")
            fencepost.produce("orders", "tea")
            assert fencepost.records("orders") == []
        """,
    )
    done = project.run(f"--fencepost-url={fencepost_fresh.bootstrap_servers}")
    assert "1 failed" in done.stdout, done.stdout
    assert "topic orders-0: offsets 0 to 1" in done.stdout
    assert "INTERNALERROR" not in done.stdout


def test_workers_of_xdist_share_nothing(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.parametrize("number", range(20))
        def test_it(fencepost, number):
            fencepost.topic("orders")
            fencepost.produce("orders", str(number))
            assert [record.value for record in fencepost.records("orders")] == [str(number).encode()]
        """,
    )
    assert project.outcomes("-n", "2") == "20 passed"


@pytest.mark.parametrize("scope", ["function", "session"])
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_the_broker_is_on_the_loop_of_its_test_in_both_scopes(project: Project, scope: str, mode: str) -> None:
    project.write(
        "test_it.py",
        f"""
        import asyncio
        import pytest
        import pytest_asyncio

        pytestmark = pytest.mark.asyncio(loop_scope="{scope}")

        @pytest_asyncio.fixture(loop_scope="{scope}")
        async def orders(async_fencepost):
            return await async_fencepost.topic("orders")

        @pytest.mark.parametrize("attempt", [1, 2])
        async def test_it(async_fencepost, orders, attempt):
            assert async_fencepost.loop is asyncio.get_running_loop()
            await async_fencepost.produce(orders, "x")
            await async_fencepost.advance(hours=1)
            assert len(await async_fencepost.records(orders)) == 1
        """,
    )
    assert project.outcomes("-o", f"asyncio_mode={mode}") == "2 passed"


def test_a_session_may_have_clients_that_know_the_address_before_any_broker_runs(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.fixture(scope="session")
        def address(fencepost_bootstrap_servers):
            return fencepost_bootstrap_servers

        def test_one(address, fencepost):
            assert fencepost.bootstrap_servers == address

        def test_other(address, fencepost):
            assert fencepost.bootstrap_servers == address
        """,
    )
    assert project.outcomes() == "2 passed"


def test_a_wrong_mark_fails_with_the_remedy(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.fencepost({"num.partitions": 3})
        def test_it(fencepost):
            pass
        """,
    )
    done = project.run()
    assert "write @pytest.mark.fencepost(settings={...})" in done.stdout
    assert "1 error" in done.stdout


def test_a_run_that_does_not_use_it_imports_nothing_of_the_broker(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import sys

        def test_it():
            loaded = [name for name in sys.modules if name.startswith(("fencepost.", "uvloop", "structlog", "kafka"))]
            assert sorted(loaded) == ["fencepost.testing", "fencepost.testing.plugin"]
        """,
    )
    assert project.outcomes() == "1 passed"


def test_a_broker_starts_without_libraries_that_it_does_not_need(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import sys

        def test_it(fencepost):
            fencepost.crash()
            fencepost.restart()  # the broker has something to log
            assert not {"structlog", "rich", "uvloop", "click", "kafka"} & set(sys.modules)
        """,
    )
    assert project.outcomes() == "1 passed"


def test_a_session_is_quiet(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        def test_it(fencepost):
            fencepost.topic("orders")
            fencepost.crash()
            fencepost.restart()
        """,
    )
    done = project.run("-s")
    assert done.stderr == ""
    assert re.fullmatch(r"\.\n1 passed in [0-9.]+s\n", done.stdout), done.stdout
