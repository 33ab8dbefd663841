"""Dead letters are counted by group, and the largest counts are shown if there are too many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fencepost.broker.metrics.share_families import SHARE_FAMILIES
from fencepost.broker.share.dead_letter_copies import DeadLetterCounts


def test_copies_and_failures_are_shown_by_group() -> None:
    counts = {'a"b': DeadLetterCounts(3, 1), "few": DeadLetterCounts(1, 0), "many": DeadLetterCounts(9, 7)}
    scrape: Any = SimpleNamespace(
        most_partitions=2,
        view=SimpleNamespace(
            services=SimpleNamespace(
                dead_letter_counts=lambda: counts, waiting_copies=lambda: {"few": 1, "many": 3, "most": 4}
            )
        ),
    )
    shown = [[sample for sample in family.collect(scrape) if sample is not None] for family in SHARE_FAMILIES]
    assert [[(sample.labels, sample.value) for sample in family] for family in shown] == [
        [('consumergroup="a\\"b"', 3), ('consumergroup="many"', 9)],
        [('consumergroup="a\\"b"', 1), ('consumergroup="many"', 7)],
        [('consumergroup="many"', 3), ('consumergroup="most"', 4)],
    ]
