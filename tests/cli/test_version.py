"""`fencepost version` says what the installed package says."""

from __future__ import annotations

import json
from importlib.metadata import version as version_of

from click.testing import CliRunner

from fencepost.cli.commands import fencepost


def test_the_version_is_that_of_the_package() -> None:
    found = version_of("fencepost")
    assert CliRunner().invoke(fencepost, ["version"]).output == f"fencepost, version {found}\n"
    assert json.loads(CliRunner().invoke(fencepost, ["version", "--json"]).output)["version"] == found
