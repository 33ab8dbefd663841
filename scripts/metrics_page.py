"""Generator of the tables of docs/metrics.md from the families of metrics: `python -m scripts.metrics_page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.broker.metrics.families import SECTIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- Made of broker/metrics by `python -m scripts.metrics_page`; a test keeps it current. -->\n"


def metrics_page(present: str) -> str:
    """The whole page: what was written by hand, up to the mark, and the tables behind it."""
    before, mark, _ = present.partition(BEGIN)
    if not mark:
        raise ValueError(f"{PAGE} has no line {BEGIN!r}")
    return before + BEGIN + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    for title, families in SECTIONS.items():
        yield f"\n## {title}\n"
        yield "| metric | type | labels | meaning |"
        yield "|---|---|---|---|"
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            mark = " (+)" if family.is_per_partition else ""
            yield f"| `{family.name}`{mark} | {family.kind.value} | {labels} | {family.help} |"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
