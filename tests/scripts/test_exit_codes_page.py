"""The page of exit codes says what the table says."""

from __future__ import annotations

from fencepost.cli.exit_codes import EXIT_CODES
from scripts.exit_codes_page import PAGE, exit_codes_page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == exit_codes_page(), "run python -m scripts.exit_codes_page"


def test_each_code_stands_on_it_once_and_in_order() -> None:
    codes = [one.code for one in EXIT_CODES]
    assert codes == sorted(set(codes)) == [0, 1, 2, 3, 130, 141, 143]
    for code in codes:
        assert exit_codes_page().count(f"\n| {code} | ") == 1


def test_examples_with_a_pipe_do_not_end_a_cell_of_the_table() -> None:
    widths = {line.replace("\\|", "").count("|") for line in exit_codes_page().splitlines() if line.startswith("| ")}
    assert widths == {4}
