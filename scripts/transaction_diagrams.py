"""Draws the tables of transaction states into docs/transactions.md, in place of the diagrams that are there.

.venv/bin/python -m scripts.transaction_diagrams
"""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.broker.transaction.state_machine import (
    TABLES,
    TableAction,
    TransactionEvent,
    TransactionState,
    TransactionVersion,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "transactions.md"
_DIAGRAM = re.compile(r"(### Version (\d)\n\n```mermaid\n).*?(\n```)", re.DOTALL)


def state_diagram(version: TransactionVersion) -> str:
    """The transitions of one table; events that lead from one state to the same other share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {
        ("[*]", TransactionState.EMPTY.display_name): [TransactionEvent.INIT_PRODUCER_ID.value]
    }
    for event, row in TABLES[version].items():
        for state, cell in zip(TransactionState, row, strict=True):
            if isinstance(cell, TransactionState):
                arrows.setdefault((_name(state), _name(cell)), []).append(event.value)
            elif cell is TableAction.FORGET:
                arrows.setdefault((_name(state), "[*]"), []).append(event.value)
    lines = [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])


def _name(state: TransactionState) -> str:
    return "Kept" if state is TransactionState.KEPT else state.display_name


def with_current_diagrams(page: str) -> str:
    """The page with the diagram under each `### Version n` drawn anew."""

    def draw(diagram: re.Match[str]) -> str:
        version = TransactionVersion.V1 if diagram[2] == "1" else TransactionVersion.V2
        return diagram[1] + state_diagram(version) + diagram[3]

    return _DIAGRAM.sub(draw, page)


if __name__ == "__main__":
    PAGE.write_text(with_current_diagrams(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
