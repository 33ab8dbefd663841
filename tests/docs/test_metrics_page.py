"""The generated tables of the page of metrics list every metric."""

from __future__ import annotations

from fencepost.broker.metrics.families import FAMILIES
from fencepost.broker.metrics.family import Kind
from scripts.metrics_page import PAGE, metrics_page


def test_the_page_is_current() -> None:
    present = PAGE.read_text(encoding="utf-8")
    assert present == metrics_page(present), "run python -m scripts.metrics_page"


def test_every_family_has_one_name_of_its_own_and_a_sentence() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names)) == len({family.openmetrics_name for family in FAMILIES})
    for family in FAMILIES:
        assert family.help.endswith(".")
        assert family.name.endswith("_total") is (family.kind is Kind.COUNTER), family.name
