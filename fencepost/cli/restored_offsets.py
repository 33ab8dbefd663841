"""The option of `fencepost cluster restored` and `fencepost log restored` for the number of offsets to leave out."""

from __future__ import annotations

from typing import Final

import click

MOST_OFFSETS: Final = 10**13

skip_offsets_option = click.option(
    "--skip-offsets",
    type=click.IntRange(0, MOST_OFFSETS),
    metavar="N",
    help="How many offsets each log leaves out: more than any partition got after that moment. 0 if nothing was lost.  "
    "[default: 1000000000, or 100000 for each second since then if that is more]",
)
