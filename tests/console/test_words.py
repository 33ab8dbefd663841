"""Figures as people read them, lists in addresses, options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.console import words
from fencepost.console.kafka.coordinator_partitions import java_hash, name_of_each, partition_of
from fencepost.console.options import OptionError, parse_address
from fencepost.console.web.listing import ROWS_PER_PAGE, Listing


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 s"),
        (40, "40 ms"),
        (4_200, "4.2 s"),
        (5_000, "5 s"),
        (46_000, "46 s"),
        (14 * 60_000, "14 min"),
        (200 * 60_000, "3 h 20 min"),
        (7_200_000, "2 h"),
        (6 * 86_400_000 + 4 * 3_600_000, "6 d 4 h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert words.duration(milliseconds) == text


def test_sizes_and_counts() -> None:
    assert [words.size(n) for n in (512, 1434, 3 << 30)] == ["512 B", "1.4 KiB", "3.0 GiB"]
    assert words.counted(1, "offset") == "1 offset"
    assert words.counted(1234, "entry") == "1,234 entries"


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_that_is_shown_can_be_entered(time_ms: int) -> None:
    assert words.parse_clock(words.clock(time_ms)) == time_ms


def test_times_that_are_none_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="write 2026"):
        words.parse_clock("yesterday")
    assert words.clock(2**62) == f"{2**62} ms"


def test_the_partition_of_a_transactional_id_is_javas() -> None:
    """Computed by a JVM."""
    assert java_hash("stuck-1") == -1879172032
    assert java_hash("") == 0
    assert java_hash("Zoë 😀") == -1607028339
    assert java_hash("polygenelubricants") == -(2**31)
    assert [partition_of(name, 50) for name in name_of_each(50)] == list(range(50))
    assert [partition_of(name, 50) for name in ("stuck-1", "shop-0", "polygenelubricants")] == [32, 21, 0]


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


def test_addresses() -> None:
    assert parse_address("[::1]:9092") == ("::1", 9092)
    for wrong in ("localhost", "host:", ":9", "a:b:1", "host:99999", "http://h:1"):
        with pytest.raises(OptionError):
            parse_address(wrong)
