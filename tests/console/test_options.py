"""Addresses of brokers, as the command line takes them."""

from __future__ import annotations

import pytest

from fencepost.console.options import OptionError, parse_address


def test_addresses() -> None:
    assert parse_address("[::1]:9092") == ("::1", 9092)
    for wrong in ("localhost", "host:", ":9", "a:b:1", "host:99999", "http://h:1"):
        with pytest.raises(OptionError):
            parse_address(wrong)
