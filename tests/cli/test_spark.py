"""What `fencepost spark finish` says of each batch. With brokers: tests/integration/test_spark_command.py."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.check_back.decided import DecidedBatch
from fencepost.check_back.finishing import Finished
from fencepost.cli.commands import fencepost
from fencepost.cli.spark import _words

BATCH = DecidedBatch("squares", tuple(f"{number}:0:squares-3f9a1c02-{number}-0" for number in range(6)), batch="7")


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (Finished("t", BATCH, 6, 0), "squares: batch 7: committed 6 of 6 transactions"),
        (Finished("t", BATCH._replace(rows=60), 0, 6), "squares: batch 7, 60 rows: 6 were committed before"),
        (Finished("t", BATCH._replace(tokens=()), 0, 0), "squares: batch 7: nothing to do"),
        (
            Finished("t", BATCH, 1, 1, lost=BATCH.tokens[:4], error="1 is open"),
            (
                "squares: batch 7: committed 1 of 6 transactions; 1 were committed before; 4 are lost, though decided: "
                f"{', '.join(BATCH.tokens[:3])} and 1 more. Compare the topic with the source; 1 is open"
            ),
        ),
        (
            Finished("t", BATCH._replace(sink="batch-8cd0ef86-096d-4b7d-8237-fcb86ebd341a"), 6, 0, is_marked=True),
            "batch job 7: committed 6 of 6 transactions. It is marked as done",
        ),
    ],
    ids=["committed", "before", "nothing", "lost", "job"],
)
def test_a_line_says_what_was_done_about_a_batch(done: Finished, words: str) -> None:
    assert _words(done) == words


def test_a_pause_that_is_none_is_refused() -> None:
    refused = CliRunner().invoke(fencepost, ["spark", "finish", "--every", "0"])
    assert refused.exit_code == 2
    assert "--every" in refused.output
