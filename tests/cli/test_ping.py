"""`fencepost ping` fails for a broker that is not there, in one line, and waits no longer than it may."""

from __future__ import annotations

import time

from click.testing import CliRunner

from fencepost.cli.commands import fencepost


def test_without_a_broker_the_exit_code_is_1_and_the_address_is_named() -> None:
    result = CliRunner().invoke(fencepost, ["ping", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: no broker serves at 127.0.0.1:1: ")
    assert result.output.count("\n") == 1


def test_it_waits_as_long_as_it_may() -> None:
    began_s = time.monotonic()
    assert CliRunner().invoke(fencepost, ["ping", "--bootstrap", "127.0.0.1:1", "--wait-seconds", "0.3"]).exit_code == 1
    assert time.monotonic() - began_s >= 0.3
