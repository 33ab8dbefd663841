"""The order of the checks, and which of them are made against a broker of several nodes."""

from __future__ import annotations

import pytest

from tests.compat.clients import CLIENTS, in_order_of_clients


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the checks in order, and deselect those about a broker of one process, or of one machine, of several."""
    items[:] = in_order_of_clients(items, lambda item: _client_and_check(item)[0])
    processes, machines = config.getoption("--processes"), config.getoption("--machines")
    if processes > 1 and machines > 1:
        raise pytest.UsageError("--processes and --machines exclude each other")
    if processes == machines == 1:
        return
    left_out = {
        (client.name, check) for client in CLIENTS.values() for check in client.left_out(is_of_machines=machines > 1)
    }
    # The services of two-phase commits have brokers of their own.
    deselected = [
        item for item in items if _client_and_check(item) in left_out or item.path.name == "test_two_phase_services.py"
    ]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _client_and_check(item: pytest.Item) -> tuple[object, object]:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return params.get("client"), params.get("check")
