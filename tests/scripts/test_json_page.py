"""The page says of each command what its schema says."""

from __future__ import annotations

import json

from scripts.json_outputs import OUTPUTS
from scripts.json_page import json_page, schema_file


def test_every_command_is_on_the_page() -> None:
    page = json_page()
    for command in OUTPUTS:
        assert f"\n| `{command}` | " in page


def test_fields_are_shown_with_their_types() -> None:
    page = json_page()
    assert "| `produce` | nothing | |\n" in page
    assert "| `ping` | an object | `bootstrap` text, `apis` whole number, `duration_ms` number |\n" in page
    assert "`outcome` text (may be missing)" in page
    assert "`error` text or null" in page


def test_the_file_has_a_schema_for_each_command_that_prints() -> None:
    names = [command for command, output in OUTPUTS.items() if output is not None]
    assert list(json.loads(schema_file())["$defs"]) == names
