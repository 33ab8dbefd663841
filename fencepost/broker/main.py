"""The entry point in environments that were installed before it was `fencepost.cli.main`."""

from fencepost.cli.main import main

__all__ = ["main"]
