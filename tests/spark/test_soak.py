"""The soak of a pipeline finds what is wrong, and a short one finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import soak
from tests.spark.soak import KEYS, faults_of


def test_numbers_that_are_there_once_have_no_fault() -> None:
    assert faults_of([*range(0, 40, 2), *range(1, 40, 2)], 40, is_ordered=True) == []


def test_each_fault_is_named() -> None:
    assert faults_of([0, 1, 1, 4], 4, is_ordered=False) == [
        "2 of 4 are missing, such as [2, 3]",
        "1 of 4 are there again, such as [1]",
        "1 of 4 are from nowhere, such as [4]",
    ]


def test_only_numbers_of_one_key_have_an_order() -> None:
    numbers = [1, 0, *range(2, KEYS + 1)]
    assert faults_of(numbers, KEYS + 1, is_ordered=True) == []
    swapped = [KEYS, *range(1, KEYS), 0]
    assert faults_of(swapped, KEYS + 1, is_ordered=True) == [f"0 comes after {KEYS}, which has the same key"]
    assert faults_of(swapped, KEYS + 1, is_ordered=False) == []


@pytest.mark.long
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("kind", ["fencepost", "processes"])
def test_a_pipeline_under_kills_has_each_number_once(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "soak"
    arguments = ["--minutes", "1", "--seed", "7", "--kind", kind, "--directory", str(folder)]
    assert soak.main(arguments) == 0, capsys.readouterr().out
    assert "killed: {}" not in capsys.readouterr().out
    assert not folder.exists()
