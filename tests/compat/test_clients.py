"""Every quick check of every client passes against a broker process, and what passes is written down."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.harness import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, NotHereError, Report, fencepost, run

CHECKS = [(name, check) for name, client in CLIENTS.items() for check in client.quick_checks()]

pytestmark = [pytest.mark.compat, pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)]

Reports = Callable[[str], dict[str, Report]]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """`reports("sarama")` are the reports of one run of that client's program, made when first asked for."""

    @functools.cache
    def of(name: str) -> dict[str, Report] | NotHereError:
        client = CLIENTS[name]
        try:
            client.command()
        except NotHereError as reason:
            return reason
        with fencepost(client, tmp_path_factory.mktemp(name)) as target:
            has_long_ones = client.quick_checks() != client.known_checks()
            return run(client, target, checks=client.quick_checks() if has_long_ones else ())

    def of_or_skip(name: str) -> dict[str, Report]:
        made = of(name)
        if isinstance(made, NotHereError):
            pytest.skip(str(made))
        return made

    return of_or_skip


@pytest.mark.parametrize(("client", "check"), CHECKS)
def test_check_passes(reports: Reports, client: str, check: str) -> None:
    report = reports(client)[check]
    assert report.outcome == "passed", report.detail


@pytest.mark.parametrize("client", CLIENTS)
def test_what_passes_is_listed(reports: Reports, client: str) -> None:
    made = {report.check for report in reports(client).values() if report.outcome == "passed"}
    assert made <= set(CLIENTS[client].known_checks())
