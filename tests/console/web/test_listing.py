"""Lists in addresses: pages, filters and orders."""

from __future__ import annotations

import pytest

from fencepost.console.web.listing import ROWS_PER_PAGE, Listing


def listing(parameters: dict[str, str]) -> Listing[int]:
    return Listing(
        range(120),
        parameters,
        text_of=lambda n: f"{n:03}",
        orders={"number": lambda n: n, "parity": lambda n: n % 2},
        first_order="number",
    )


def test_a_list_has_pages_filters_and_orders() -> None:
    assert listing({}).rows == list(range(ROWS_PER_PAGE))
    assert listing({"page": "3"}).rows == list(range(100, 120))
    assert listing({"sort": "-number", "q": "11"}).rows == [*range(119, 109, -1), 11]
    assert listing({"sort": "-parity"}).rows[:2] == [1, 3]


@pytest.mark.parametrize("parameters", [{"page": "0"}, {"page": "x"}, {"sort": "no-such"}, {"page": "²"}])
def test_an_address_that_makes_no_sense_shows_the_first_page(parameters: dict[str, str]) -> None:
    assert listing(parameters).rows == list(range(ROWS_PER_PAGE))


def test_links_of_a_list_keep_the_rest_of_its_address() -> None:
    shown = listing({"q": "1", "sort": "number", "page": "2"})
    assert shown.address(page=3) == "?q=1&sort=number&page=3"
    assert shown.sorted_by("number") == "?q=1&sort=-number"
