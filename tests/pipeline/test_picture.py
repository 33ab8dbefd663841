"""The picture of a run: every label can be read, and the verdict on it is what the checker found."""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from scripts.pipeline.picture import compose, draw
from scripts.pipeline.report import Report, write_report
from scripts.pipeline.timeline import ABORTED, COMMITTED, CUT_OFF, Life, Record, Sample, Timeline, Transaction
from scripts.pipeline.verdict import Verdict, Written
from tests.pipeline.test_verdict import COUNTS, judged

RIGHT = judged()


def wrong(**figures: int) -> Verdict:
    counts = copy.deepcopy(COUNTS)
    counts["read_committed"].update(figures)
    return judged(counts=counts, written=Written({}, records=0, repeated=0))


def recorded(
    *,
    application_killed_s: float,
    broker_killed_s: float,
    spark_killed_s: float | None = None,
    end_s: float = 15.0,
    restarts: int = 0,
) -> Record:
    """A run in which all that may be shown happens; `restarts` times the application also ended by itself."""
    spark_killed_s = 0.8 * end_s if spark_killed_s is None else spark_killed_s
    record = Record()
    back_s = broker_killed_s + min(0.9, end_s / 16)
    record.lives = [Life("broker", 0.0, broker_killed_s, True), Life("broker", back_s, 2 * end_s)]
    next_s = application_killed_s + min(0.5, end_s / 30)
    record.lives.append(Life("application", end_s / 5, application_killed_s, True))
    for restart in range(restarts):
        ended_s = next_s + (end_s - next_s) * (restart + 1) / (restarts + 1)
        record.lives.append(Life("application", next_s, ended_s))
        next_s = ended_s + end_s / 100
    record.lives += [Life("application", min(next_s, end_s), end_s), Life("Spark", end_s / 15, spark_killed_s, True)]
    record.lives.append(Life("Spark", spark_killed_s + end_s / 50, 2 * end_s))
    moments = [end_s / 5 + end_s * 0.8 * number / 300 for number in range(300)]
    record.transactions = [Transaction(ABORTED if number % 2 else COMMITTED, at) for number, at in enumerate(moments)]
    record.transactions.append(Transaction(CUT_OFF, application_killed_s, application_killed_s + end_s / 25))
    record.samples = [Sample(at_s, 328_521, 1_130 * number, 1_100 * number) for number, at_s in enumerate(moments)]
    return record


RUNS = {
    "as usual": recorded(application_killed_s=6, broker_killed_s=10),
    "killed at once": recorded(application_killed_s=3.1, broker_killed_s=3.2),
    "killed at the end": recorded(application_killed_s=14.8, broker_killed_s=14.9),
    "Spark killed after the application": recorded(application_killed_s=6, broker_killed_s=10, spark_killed_s=18),
    "killed in the other order": recorded(application_killed_s=9, broker_killed_s=4),
    "a short run": recorded(application_killed_s=0.5, broker_killed_s=0.7, end_s=1.2),
    "a long run": recorded(application_killed_s=900, broker_killed_s=1_800, end_s=3_000),
    "an application that ends again and again": recorded(application_killed_s=6, broker_killed_s=10, restarts=5),
    "nothing happened": Record(),
}
VERDICTS = {
    "right": RIGHT,
    "wrong": wrong(flights=1, departures=12_345, torn=123_456, cancelled=7),
}


def shown_texts(figure: Figure) -> list[Text]:
    """All texts that a viewer sees: not those of ticks outside their axis."""
    figure.canvas.draw()
    hidden = set()
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in axis.get_major_ticks():
                if not axes.axison or not low <= tick.get_loc() <= high:
                    hidden |= {tick.label1, tick.label2}
            if not axes.axison:
                hidden.add(axis.label)
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in texts if text.get_visible() and text.get_text() and text not in hidden]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts of which one covers a part of the other."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(figure)]
    return [
        (one, other) for (one, box), (other, other_box) in itertools.combinations(boxes, 2) if box.overlaps(other_box)
    ]


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        *((record, list(VERDICTS.values())[number % 2]) for number, record in enumerate(RUNS.values())),
        (RUNS["as usual"], VERDICTS["wrong"]),
    ],
    ids=[*RUNS, "as usual with a wrong verdict"],
)
def test_no_label_covers_another_one_or_leaves_the_picture(record: Record, verdict: Verdict) -> None:
    figure = compose(record, verdict)
    assert overlapping(figure) == []
    for text in shown_texts(figure):
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text


def test_labels_that_do_cover_each_other_are_found() -> None:
    figure = compose(RUNS["as usual"], RIGHT)
    figure.text(0.012, 0.975, "over it", va="top")
    assert overlapping(figure) == [("Exactly once", "over it")]


def texts_of(record: Record, verdict: Verdict) -> list[str]:
    return [text.get_text() for text in shown_texts(compose(record, verdict))]


def test_all_kills_the_ends_of_transactions_and_the_counts_are_shown() -> None:
    texts = texts_of(RUNS["as usual"], RIGHT)
    for expected in (
        "kill -9, serves again after 0.90 s",
        "kill -9, starts again after 0.50 s",
        "kill -9, starts again after 0.30 s",
        "catches up",
        "150 committed",
        "150 aborted",
        "1 cut off",
        "  fenced and aborted after 0.60 s",
        "read uncommitted\n337,870",
        "the source\n328,521",
        "read committed\n328,900",
        "8,970 departures that an\nuncommitted reader saw\nand no committed one",
    ):
        assert expected in texts


def test_a_transaction_that_nobody_fenced_is_shown_as_that() -> None:
    record = copy.deepcopy(RUNS["as usual"])
    record.transactions[-1] = record.transactions[-1]._replace(fenced_s=None)
    assert "  never fenced" in texts_of(record, RIGHT)


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=list(VERDICTS))
def test_the_verdict_is_what_the_checker_found(verdict: Verdict) -> None:
    texts = texts_of(RUNS["as usual"], verdict)
    assert ("Exactly once" in texts) is verdict.holds
    assert ("NOT exactly once" in texts) is not verdict.holds
    assert verdict.figures in texts
    reasons = [check for check in verdict.checks if not check.holds]
    shown = "\n".join(texts)
    for reason in reasons[:2]:
        assert f"wrong: {reason.statement}: {reason.found}" in shown


def test_the_figures_of_a_wrong_run_are_named() -> None:
    assert wrong(flights=1, torn=4, cancelled=5, departures=9).figures == (
        "lost 2, doubled 6, torn 4, aborted yet visible 5, of 3 flights"
    )


def test_the_same_run_draws_the_same_file_and_another_verdict_another_one(tmp_path: Path) -> None:
    contents = []
    for name, verdict in (("one", RIGHT), ("again", RIGHT), ("wrong", VERDICTS["wrong"])):
        draw(RUNS["as usual"], verdict, tmp_path / name)
        contents.append((tmp_path / name).read_text(encoding="utf-8"))
    assert contents[0] == contents[1]
    assert f"<title>Exactly once: {RIGHT.figures}</title>" in contents[0]
    assert f"<title>NOT exactly once: {VERDICTS['wrong'].figures}</title>" in contents[2]


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=list(VERDICTS))
def test_the_report_needs_nothing_beside_it_and_tells_every_check(verdict: Verdict, tmp_path: Path) -> None:
    path = write_report(Report(RUNS["as usual"], verdict, [("loading", "3.10", "<fast>")]), tmp_path)
    page = path.read_text(encoding="utf-8")
    assert page.count("<svg ") == 1
    assert (
        re.findall(r'(?:src|href)="(?!#)[^"]*"', re.sub(r"<metadata>.*?</metadata>", "", page, flags=re.DOTALL)) == []
    )
    assert f'aria-label="{verdict.headline}: {verdict.figures}"' in page
    assert page.count(">ok</td>") == sum(check.holds for check in verdict.checks)
    assert page.count(">wrong</td>") == sum(not check.holds for check in verdict.checks)
    assert "&lt;fast&gt;" in page


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    RUNS["as usual"].save(tmp_path / "record.json")
    assert Record.loaded(tmp_path / "record.json") == RUNS["as usual"]


def test_a_timeline_ends_lives_and_fences_what_was_cut_off() -> None:
    counts = iter(range(1_000))
    timeline = Timeline(lambda: (next(counts), 0, 0))
    timeline.start()
    timeline.began("application", 1.0)
    timeline.ended("application", is_killed=True)
    timeline.transaction_cut_off()
    timeline.began("application")
    timeline.former_producers_fenced(5.0)
    timeline.transaction_ended(COMMITTED, 6.0)
    timeline.stop()
    record = timeline.record
    assert [(life.is_killed, life.end_s is None) for life in record.lives] == [(True, False), (False, True)]
    assert [transaction.fenced_s for transaction in record.transactions] == [5.0, None]
    assert record.count(COMMITTED) == record.count(CUT_OFF) == 1
    assert record.samples[-1].source == len(record.samples) - 1
