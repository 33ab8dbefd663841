"""The generated page of served APIs says what the code does."""

from __future__ import annotations

from fencepost.broker.requests.api import APIS
from scripts.protocol_support_page import PAGE, protocol_support_page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == protocol_support_page(), "run python -m scripts.protocol_support_page"


def test_every_served_api_names_its_error_codes() -> None:
    page = protocol_support_page()
    assert "\n- **EndTxn**: NOT_COORDINATOR," in page.replace(
        "COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, ", ""
    )
    assert page.count("\n- **") == len(APIS)


def test_every_served_api_says_what_it_does() -> None:
    assert not [line for line in protocol_support_page().splitlines() if line.endswith("|  |")]
