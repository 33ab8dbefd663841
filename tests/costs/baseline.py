"""What requests cost when it was last looked at, by version of Python: another one has other instructions."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.costs.counting import Counts
from tests.costs.replays import REPLAYS, broker_with_a_client

PATH = Path(__file__).with_name("baseline.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LEEWAY = 0.1
REWRITE = "python -m tests.costs --write"


def measure(name: str, directory: str) -> Counts:
    """Run one replay on its own broker."""

    async def run() -> Counts:
        async with broker_with_a_client(directory) as client:
            return await REPLAYS[name](client)

    return asyncio.run(run())


def measure_all() -> dict[str, Counts]:
    counts = {}
    for name in REPLAYS:
        with tempfile.TemporaryDirectory() as directory:
            counts[name] = measure(name, directory)
    return counts


def read() -> dict[str, Any]:
    """By version of Python, replay and kind of count."""
    content: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return content


def write(counts: Mapping[str, Counts]) -> None:
    """Replace what is known of this version."""
    content = {**read(), VERSION: {name: vars(one) for name, one in counts.items()}}
    PATH.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def compare(counts: Counts, baseline: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """What has grown by more than the leeway, and what has shrunk by more."""
    grown, shrunk = [], []
    for kind, before in baseline.items():
        now = getattr(counts, kind)
        text = f"{kind}: {before:,} before, {now:,} now"
        if now > before * (1 + LEEWAY):
            grown.append(text)
        elif now < before * (1 - LEEWAY):
            shrunk.append(text)
    return grown, shrunk
