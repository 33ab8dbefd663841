"""Long tables: filter, order and pages of 50 rows, all in the address, so that it can be passed on. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

Row = TypeVar("Row")

ROWS_PER_PAGE: Final = 50
PAGE_NUMBER: Final = re.compile("[0-9]{1,9}")


class Listing(Generic[Row]):
    """One page of rows.

    parameters: query of the address: `q` filters, `sort` is the name of an order, with `-` in front for the opposite
                one, `page` counts from 1.
    text_of: returns the text that the filter searches. orders: sort keys by name.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        parameters: Mapping[str, str],
        *,
        text_of: Callable[[Row], str],
        orders: Mapping[str, Callable[[Row], Any]],
        first_order: str,
    ) -> None:
        self._parameters = dict(parameters)
        self.query = parameters.get("q", "").strip()
        wanted = parameters.get("sort", first_order)
        self.order = wanted.removeprefix("-")
        if self.order not in orders:
            wanted, self.order = first_order, first_order.removeprefix("-")
        self.is_descending = wanted.startswith("-")
        found = list(rows)
        self.total = len(found)
        if self.query:
            lowered = self.query.lower()
            found = [row for row in found if lowered in text_of(row).lower()]
        # Twice, as `reverse` keeps the order of equals: rows that compare equal stay in the order of their text.
        found.sort(key=text_of)
        found.sort(key=_none_first(orders[self.order]), reverse=self.is_descending)
        self.matched = len(found)
        self.pages = max(1, -(-self.matched // ROWS_PER_PAGE))
        number = parameters.get("page", "1")
        self.page = min(self.pages, max(1, int(number))) if PAGE_NUMBER.fullmatch(number) else 1
        self.rows = found[(self.page - 1) * ROWS_PER_PAGE : self.page * ROWS_PER_PAGE]

    def address(self, **changes: str | int | None) -> str:
        """The query of the same list with something changed; None removes a parameter."""
        merged = self._parameters | {name: str(value) for name, value in changes.items() if value is not None}
        for name, value in changes.items():
            if value is None:
                merged.pop(name, None)
        return "?" + urlencode(merged)

    def sorted_by(self, order: str, *, first_descending: bool = False) -> str:
        """The query that sorts by an order, or turns it around if that is the present one."""
        descending = not self.is_descending if self.order == order else first_descending
        return self.address(sort=f"-{order}" if descending else order, page=None)


def _none_first(key: Callable[[Row], Any]) -> Callable[[Row], tuple[bool, Any]]:
    def with_none(row: Row) -> tuple[bool, Any]:
        value = key(row)
        return (value is not None, value if value is not None else 0)

    return with_none
