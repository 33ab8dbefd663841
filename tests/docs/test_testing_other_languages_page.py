"""docs/testing-other-languages.md: its tables and limits are those of the code. `test_pages_run` runs its commands."""

from __future__ import annotations

import re

import pytest

from fencepost.testing.http.app import LONGEST_BODY_BYTES, MOST_OPERATIONS
from fencepost.testing.http.brokers import MOST_BROKERS
from fencepost.testing.http.operations import LONGEST_WAIT_S, MOST_RECORDS
from fencepost.testing.http.refusals import KINDS, STATUSES
from scripts.test_broker_page import PAGE, with_tables

EXAMPLES = PAGE.parent / "examples"
SHOWN = {
    "java": EXAMPLES / "testing_java" / "OrdersTest.java",
    "go": EXAMPLES / "testing_go" / "orders_test.go",
    "node": EXAMPLES / "testing_node" / "orders.test.mjs",
    "rust": EXAMPLES / "testing_rust" / "tests" / "orders.rs",
}
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_tables_are_those_of_the_code() -> None:
    assert with_tables(TEXT) == TEXT, "write them with python -m scripts.test_broker_page"


def test_it_names_every_refusal() -> None:
    rows = re.findall(r"^\| (\d{3}(?:, \d{3})*) \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert {int(status) for statuses, _ in rows for status in statuses.split(", ")} == set(STATUSES)
    assert {kind for _, kind in rows} == set(KINDS)


def test_its_limits_are_those_of_the_code() -> None:
    assert f"{MOST_BROKERS} brokers and {MOST_OPERATIONS} operations may be there at once" in TEXT
    assert f"and {LONGEST_WAIT_S:g} s at most" in TEXT
    assert f"`limit`, {MOST_RECORDS:,} at most" in TEXT
    assert f"a body above {LONGEST_BODY_BYTES // 1024 // 1024} MiB" in TEXT


@pytest.mark.parametrize("language", SHOWN)
def test_the_test_on_the_page_of_a_language_is_that_of_its_example(language: str) -> None:
    text = PAGE.with_stem(f"{PAGE.stem}-{language}").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown.strip() in SHOWN[language].read_text(encoding="utf-8")
