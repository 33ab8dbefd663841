"""Whatever names and records hold, a page shows it and nothing of it acts."""

from __future__ import annotations

import pytest

from fencepost.console.web.rendering import make_environment, static_files


def rendered(template: str, **values: object) -> str:
    text: str = make_environment().from_string(template).render(**values)
    return text


def test_text_is_escaped() -> None:
    assert rendered("{{ name }}", name="<b>&") == "&lt;b&gt;&amp;"


def test_characters_that_hide_something_are_shown_as_numbers_and_lines_stay() -> None:
    assert rendered("{{ name }}", name="a\0b\u202ec\nd") == "a\\u0000b\\u202ec\nd"
    assert rendered("{{ name|visible }}", name="a\nb") == "a\\u000ab"
    assert rendered("{{ name|visible }}", name="") == "(empty)"


def test_a_value_that_the_browser_sends_back_stays_as_it_is() -> None:
    assert rendered("{{ name|as_given }}", name="a\u202eb<") == "a\u202eb&lt;"


@pytest.mark.parametrize(("value", "shown"), [(None, "null"), ("Zoë".encode(), "Zoë"), (b"\xff\x00", "ff 00")])
def test_a_record_is_text_or_hex(value: bytes | None, shown: str) -> None:
    assert rendered("{{ value|content }}", value=value) == shown


def test_numbers_have_their_thousands_apart() -> None:
    assert rendered("{{ 1234567|number }} {{ 1234.56|number }}") == "1,234,567 1,234.6"


def test_the_style_sheet_is_among_the_static_files() -> None:
    assert any(name.endswith(".css") for name in static_files())
