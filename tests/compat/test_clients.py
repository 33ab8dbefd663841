"""Every quick check of every client passes against a broker process, and what passes is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.compat.brokers import Nodes, running, stores
from tests.compat.clients import CLIENTS
from tests.compat.harness import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, Client, NotHereError, Report, run
from tests.support.missing_tools import missing


def _parameters(name: str, *more: str) -> ParameterSet:
    return pytest.param(name, *more, marks=pytest.mark.long if CLIENTS[name].is_long else pytest.mark.compat)


CHECKS = [_parameters(name, check) for name, client in CLIENTS.items() for check in client.quick_checks()]
LONG_CHECKS = [
    pytest.param(name, check, marks=pytest.mark.long)
    for name, client in CLIENTS.items()
    for check in client.known_checks()
    if (client.is_secured or client.has_long_tests) and check not in client.quick_checks()
]
# Checks mostly wait; three programs, each with its own broker, keep two cores busy.
PROGRAMS_AT_ONCE = 3

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)

Reports = Callable[[str], dict[str, Report]]


@pytest.fixture(scope="session")
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """What each client's broker consists of."""
    machines = request.config.getoption("--machines")
    if machines == 1:
        yield Nodes(request.config.getoption("--processes"))
        return
    with stores(tmp_path_factory.mktemp("objects")) as shared:
        yield Nodes(machines, shared)


@pytest.fixture(scope="session")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nodes: Nodes
) -> Iterator[Reports]:
    """`reports("sarama")` are the reports of one run of that client's program; without it the test is skipped, in CI it
    fails.

    The programs of all clients that tests were chosen of run from the start, some at once.
    """
    items = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.path == Path(__file__)
    ]
    chosen: dict[str, set[str]] = {}
    for item in items:
        made = chosen.setdefault(str(item.callspec.params["client"]), set())
        if "check" in item.callspec.params:
            made.add(str(item.callspec.params["check"]))
    with ThreadPoolExecutor(PROGRAMS_AT_ONCE) as programs:
        runs = {
            name: programs.submit(_made, client, tmp_path_factory.mktemp(name), chosen[name], nodes)
            for name, client in CLIENTS.items()
            if name in chosen
        }

        def of(name: str) -> dict[str, Report]:
            try:
                return runs[name].result()
            except NotHereError as reason:
                missing(str(reason))

        yield of
        programs.shutdown(cancel_futures=True)


def _made(client: Client, folder: Path, chosen: set[str], nodes: Nodes) -> dict[str, Report]:
    """The reports of the chosen checks, or of all quick ones: also of those that no list has if it has no long ones."""
    client.command()  # a client that is not here needs no broker
    known, quick = client.known_checks(), client.quick_checks()
    checks = [check for check in known if check in chosen | set(quick)] if known != quick else []
    if not chosen <= set(quick):
        checks = [check for check in known if check in chosen]
    if left_out := nodes.left_out(client):
        checks = [check for check in checks or known if check not in left_out]
    with running(client, folder, nodes) as target:
        return run(client, target, checks=checks)


@pytest.mark.parametrize(("client", "check"), CHECKS + LONG_CHECKS)
def test_check_passes(reports: Reports, client: str, check: str) -> None:
    report = reports(client)[check]
    assert report.outcome == "passed", report.detail


@pytest.mark.parametrize("client", [_parameters(name) for name in CLIENTS])
def test_what_passes_is_listed(reports: Reports, client: str) -> None:
    made = {report.check for report in reports(client).values() if report.outcome == "passed"}
    assert made <= set(CLIENTS[client].known_checks())
