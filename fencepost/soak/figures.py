"""Figures of a soak, counted from the clients' history."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Figures:
    """operations: those invoked. ended: transactions whose outcome the client knows."""

    operations: int = 0
    sent: int = 0
    read: int = 0
    begun: int = 0
    committed: Counter[str] = field(default_factory=Counter)  # by client
    aborted: int = 0

    @property
    def unknown(self) -> int:
        """Transactions of unknown outcome: their client was killed, fenced, or timed out."""
        return self.begun - self.committed.total() - self.aborted


def figures_of(history_path: Path) -> Figures:
    """Count the lines of a history."""
    figures = Figures()
    with history_path.open("rb") as lines:
        for line in lines:
            try:
                one = json.loads(line)
            except ValueError:
                continue  # the unfinished line of a killed client
            operation, outcome = one["operation"], one["type"]
            if outcome == "invoke":
                figures.operations += 1
                figures.sent += operation == "send"
            elif outcome == "ok":
                if operation == "commit":
                    figures.committed[one["client"]] += 1
                elif operation == "abort":
                    figures.aborted += 1
                elif operation == "begin":
                    figures.begun += 1
                    figures.operations += 1
                elif operation == "poll":
                    figures.operations += 1
                    figures.read += len(one["records"])
    return figures
