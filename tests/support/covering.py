"""Few rows of a table in which each value of each column has its turn; the marker `long` has the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import pytest


def covering(rows: Sequence[Sequence[Hashable]], first: int = 0) -> set[int]:
    """The numbers of few rows that together have each value of each column, and the values of a column equally often.

    Greedily, from row `first` on.
    """
    used = dict.fromkeys(((column, value) for row in rows for column, value in enumerate(row)), 0)
    chosen: set[int] = set()
    turns = [(first + number) % len(rows) for number in range(len(rows))]

    def gain(number: int) -> tuple[int, int]:
        uses = [used[value] for value in enumerate(rows[number])]
        return uses.count(0), -sum(uses)

    while 0 in used.values():
        best = max(turns, key=gain)
        chosen.add(best)
        for value in enumerate(rows[best]):
            used[value] += 1
    return chosen


def mark_all_but_few_as_long(items: Iterable[pytest.Item]) -> None:
    """Leave a covering of the parameters of each test in the quick run. A test whose rows are marked already stays."""
    of_tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            of_tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, rows in of_tests.items():
        if any(row.get_closest_marker("long") is not None for row in rows):
            continue
        rows.sort(key=lambda row: row.name)
        # Tests begin at different rows: so it is not the same client that meets the same database in all of them.
        chosen = covering([tuple(row.callspec._idlist) for row in rows], sum(name.encode()) % len(rows))
        for number, row in enumerate(rows):
            if number not in chosen:
                row.add_marker(pytest.mark.long)
