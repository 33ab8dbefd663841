"""The producer id and epoch of a transaction on the command line."""

from __future__ import annotations

import click
import pytest

from fencepost.cli.transaction_ends import PairType


def test_a_pair_is_an_id_and_an_epoch() -> None:
    assert PairType().convert("7:0", None, None) == (7, 0)
    assert PairType().convert((7, 0), None, None) == (7, 0)


@pytest.mark.parametrize("text", ["", "7", "7:", ":0", "7:0:1", "-7:0", "7:-1", "a:b", "\u0667:0", "7 :0"])
def test_other_words_are_no_pair(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not PID:EPOCH, such as 7:0"):
        PairType().convert(text, None, None)
