"""Problems of a partition's files as values."""

from __future__ import annotations

from fencepost.broker.inspection.problems import DirectoryProblem, Kind


def test_a_problem_has_a_size_where_its_place_is_known() -> None:
    assert DirectoryProblem(Kind.DAMAGE, "f.log", "damaged", 100, 150).size_bytes == 50
    assert DirectoryProblem(Kind.MISSING, "f.log", "missing").size_bytes == 0
    assert DirectoryProblem(Kind.DAMAGE, "f.log", "damaged", 100).size_bytes == 0
