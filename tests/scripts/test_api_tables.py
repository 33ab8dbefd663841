"""The tables that are written from the declarations of APIs are current."""

from __future__ import annotations

from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES as DECLARED
from scripts.api_tables import FAMILIES, SERVED_ROWS, families, served_rows


def test_the_rows_of_served_apis_are_current() -> None:
    assert SERVED_ROWS.read_text(encoding="utf-8") == served_rows(), "run python -m scripts.api_tables"


def test_the_families_of_messages_are_current() -> None:
    assert FAMILIES.read_text(encoding="utf-8") == families(), "run python -m scripts.api_tables"


def test_every_declared_request_has_a_handler() -> None:
    assert not [ApiKey(key).name for key in DECLARED if key not in SERVED]
