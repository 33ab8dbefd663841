"""A driver's session fences the one before it, and keeps the sink's ledger."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.spark.decisions import DriverReplaced
from fencepost.spark.session import Session
from tests.spark.run import Run, clients_are_closed, new_run  # noqa: F401
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = pytest.mark.integration


@pytest.fixture
def run(fencepost: Any) -> Run:
    return new_run(fencepost)


def test_a_session_that_was_replaced_writes_nothing_more(run: Run) -> None:
    first = Session(run.options, run.sink)
    second = Session(run.options, run.sink)
    with pytest.raises(DriverReplaced, match=f"another driver of the sink '{run.sink}' has taken over"):
        first.mark_aborted(1)
    second.mark_aborted(2)
    first.close()
    second.close()
    reading = Session(run.options, run.sink)
    assert reading.latest.aborted_until_ms == 2
    reading.close()
