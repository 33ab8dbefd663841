"""The diagrams on the page about transactions are those of the tables."""

from __future__ import annotations

from fencepost.broker.transaction.state_machine import TransactionVersion
from scripts.transaction_diagrams import PAGE, state_diagram, with_current_diagrams


def test_the_page_shows_the_tables_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_current_diagrams(page), "run: python -m scripts.transaction_diagrams"
    for version in TransactionVersion:
        assert state_diagram(version) in page


def test_a_diagram_has_one_arrow_from_a_state_to_another() -> None:
    diagram = state_diagram(TransactionVersion.V1)
    assert diagram.startswith("stateDiagram-v2\n    [*] --> Empty: InitProducerId\n")
    assert "    Ongoing --> PrepareCommit: EndTxn (commit)\n" in diagram
    assert "    Ongoing --> PrepareAbort: InitProducerId, EndTxn (abort), time-out\n" in diagram
    arrows = [line.split(":")[0] for line in diagram.splitlines()[1:]]
    assert len(set(arrows)) == len(arrows)
