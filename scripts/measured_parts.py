"""The command line of scripts that measure in parts: which parts, and whether little of each will do."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator
from typing import NamedTuple


class Asked(NamedTuple):
    """What the command line asks for. is_quick: little of everything, to see that it works."""

    parts: Collection[str]
    is_quick: bool

    def each(self) -> Iterator[str]:
        """Each part in turn, after a headline with the load of the machine."""
        for name in self.parts:
            print(f"\n{name} (load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors)\n", flush=True)
            yield name


def read_arguments(description: str | None, parts: Collection[str]) -> Asked:
    """Read the command line. parts: the names of all parts, which are measured by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="what to measure; by default everything")
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    options = parser.parse_args()
    return Asked(options.parts or list(parts), options.quick)
