"""Which checks are made against a broker of several nodes."""

from __future__ import annotations

import pytest

from tests.compat.clients import CLIENTS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the checks that are about a broker of one process, or of one machine, where it has several."""
    processes, machines = config.getoption("--processes"), config.getoption("--machines")
    if processes > 1 and machines > 1:
        raise pytest.UsageError("--processes and --machines exclude each other")
    if processes == machines == 1:
        return
    left_out = {
        (client.name, check) for client in CLIENTS.values() for check in client.left_out(is_of_machines=machines > 1)
    }
    deselected = [item for item in items if _client_and_check(item) in left_out]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _client_and_check(item: pytest.Item) -> tuple[object, object]:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return params.get("client"), params.get("check")
