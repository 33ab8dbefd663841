"""Pieces of one soak: each leaves its state in the directory, and the next one continues it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fencepost.soak.plan import Plan

FILE: Final = "soak.json"
FORMAT: Final = 1
POSTGRES: Final = "postgres"
NEEDED: Final = ("history.jsonl", "objects", POSTGRES)


class PiecesError(Exception):
    """The directory cannot be gone on with; the text is one sentence."""


@dataclass
class Pieces:
    """All pieces before the present one.

    minutes, duration_s: times with faults, and in all, together.
    history_bytes: size of the history without its final read, which each piece makes anew.
    lives: number of processes of each slot, as names of clients are never used twice.
    holdings: sizes at the end of each piece.
    """

    kinds: list[str]
    rate: float
    seed: int
    machine_count: int
    count: int = 0
    minutes: float = 0.0
    duration_s: float = 0.0
    history_bytes: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    fenced_zombies: int = 0
    sessions: dict[str, int] = field(default_factory=dict)
    recoveries_s: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    holdings: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def none_yet(cls, plan: Plan) -> Pieces:
        return cls(list(plan.kinds), plan.rate, plan.seed, plan.machine_count)

    def save(self, directory: Path) -> None:
        """Write them into the directory, at the end of a piece that is complete."""
        written = directory / f"{FILE}.written"
        written.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2))
        os.replace(written, directory / FILE)


def load_pieces(directory: Path) -> Pieces:
    """Read the state that the earlier pieces have left. Raises PiecesError."""
    pieces = _read(directory)
    missing = [name for name in NEEDED if not (directory / name).exists()]
    if missing:
        raise PiecesError(f"{directory} is not complete: it has no {missing[0]}")
    history = directory / "history.jsonl"
    if history.stat().st_size < pieces.history_bytes:
        raise PiecesError(f"{history} is shorter than the pieces before have left it")
    return pieces


def begin_piece(directory: Path, pieces: Pieces) -> None:
    """Cut the final read of the piece before off the history; the directory is complete again once this piece is."""
    (directory / FILE).unlink()
    os.truncate(directory / "history.jsonl", pieces.history_bytes)


def _read(directory: Path) -> Pieces:
    """Raises PiecesError."""
    path = directory / FILE
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        if (directory / "history.jsonl").exists():
            raise PiecesError(
                f"{directory} has a soak that did not come to its end, or is not of machines: it has no {FILE}"
            ) from None
        raise PiecesError(f"{directory} has no soak to go on with: there is no {FILE} in it") from None
    except (OSError, ValueError) as error:
        raise PiecesError(f"{path} cannot be read: {error}") from error
    if not isinstance(stored, Mapping) or stored.get("format") != FORMAT:
        raise PiecesError(f"{path} is not of this version of fencepost soak")
    try:
        pieces = Pieces(**{name: value for name, value in stored.items() if name != "format"})
    except TypeError as error:
        raise PiecesError(f"{path} is not of this version of fencepost soak") from error
    return pieces
