"""Each input below a committed offset is in one committed output."""

from __future__ import annotations

from fencepost.history.findings import Anomaly
from tests.history.story import Story, process


def test_an_input_in_two_committed_outputs_is_processed_twice(story: Story) -> None:
    app = story.producer("app")
    first = process(story, app, "o1", 0, ["i1", "i2"], 2)
    second = process(story, app, "o2", 2, ["i2"], 2)
    assert story.found() == [(Anomaly.INPUT_PROCESSED_TWICE, [first[0], first[2], second[0], second[2]])]


def test_an_input_below_the_committed_offset_in_no_committed_output_is_never_processed(story: Story) -> None:
    source = story.writer.client("source")
    sent = []
    for offset in range(3):
        call = source.send("in", f"i{offset}", 0)
        sent.append(story.line)
        call.ok(offset=offset)
    app = story.producer("app")
    process(story, app, "o1", 0, ["i0"], 1)
    second = process(story, app, "o2", 2, ["i2"], 3)
    assert story.found() == [(Anomaly.INPUT_NEVER_PROCESSED, [sent[1], *second[1:]])]
