"""The search finds what is planted where a topic is deleted and created again under its name, in worlds of one broker,
of processes and of machines that chance made and not for that bug.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.clients.recreator import AGAIN
from tests.simulation.invariants import bugs, engine_bugs, process_bugs
from tests.simulation.planted_search import TIMEOUT_S, search
from tests.simulation.script import Script


def _has_one_broker(script: Script) -> bool:
    return AGAIN in script.roles and script.node_count == 1


def _has_processes(script: Script) -> bool:
    return AGAIN in script.roles and script.is_of_processes


def _has_machines(script: Script) -> bool:
    return AGAIN in script.roles and script.engine is not None


FOUND_BY = [
    (bugs.offsets_of_a_deleted_topic_stay, _has_one_broker),
    (process_bugs.a_name_is_free_while_a_process_has_logs_of_the_deleted_topic_open, _has_processes),
    pytest.param(engine_bugs.a_flush_takes_rows_of_deleted_topics, _has_machines, marks=pytest.mark.long),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("bug", "concerns"), FOUND_BY, ids=lambda value: value.__name__)
def test_the_search_finds_a_planted_bug(bug: bugs.Bug, concerns: Callable[[Script], bool]) -> None:
    search(bug, 50, concerns)
