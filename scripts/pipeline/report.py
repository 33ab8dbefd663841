"""The report of one run of the demonstration: one HTML file that needs nothing beside it, and its picture as SVG."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jinja2

from scripts.pipeline.picture import draw
from scripts.pipeline.timeline import ABORTED, COMMITTED, CUT_OFF, Record
from scripts.pipeline.verdict import Verdict

TEMPLATE = Path(__file__).with_name("report.html.jinja")
PICTURE = "picture.svg"
REPORT = "report.html"
RECORD = "record.json"


class Report(NamedTuple):
    """What is reported. timings: (step, seconds, rate), as text."""

    record: Record
    verdict: Verdict
    timings: Sequence[tuple[str, str, str]]


def write_report(report: Report, folder: Path) -> Path:
    """Write picture, record and report into a folder; returns the report's path."""
    draw(report.record, report.verdict, folder / PICTURE)
    report.record.save(folder / RECORD)
    path = folder / REPORT
    path.write_text(html(report, (folder / PICTURE).read_text(encoding="utf-8")), encoding="utf-8")
    return path


def html(report: Report, picture: str) -> str:
    """The report's text around a picture, which is an SVG document."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    counts = {outcome: report.record.count(outcome) for outcome in (COMMITTED, ABORTED, CUT_OFF)}
    page: str = template.render(
        verdict=report.verdict,
        counts=counts,
        timings=report.timings,
        # Inside HTML an SVG stands without its XML declaration.
        picture=picture[picture.index("<svg") :],
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        versions=f"Fencepost {version('fencepost')}, PySpark {version('pyspark')}, "
        f"confluent-kafka {version('confluent-kafka')}, Python {platform.python_version()}",
    )
    return page
