"""The version of this broker."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def build_version() -> str:
    """The version of the installed package."""
    try:
        return version("fencepost")
    except PackageNotFoundError:  # a checkout on the path
        return "unknown"
