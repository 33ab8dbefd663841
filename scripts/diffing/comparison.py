"""Answers of two brokers side by side, what of them deviates, and the files in which Kafka's answers are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scripts.diffing.exchange import Answer, Exchange

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "tests" / "frames" / "answers"
NOTHING = "(nothing)"

Answers = Mapping[tuple[str, int], Any]
"""What a broker said, by situation and version."""


class Deviation(NamedTuple):
    """One value that is not the same. path: where in the reply, as in `topics.0.error_code`; empty for all of it."""

    theme: str
    situation: str
    version: int
    path: str
    kafka: Any
    fencepost: Any


def described(deviations: Iterable[Deviation]) -> str:
    """Text for people, in which what deviates in the same way at several versions is said once."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in deviations:
        values = f"    Kafka     {_shown(one.kafka)}\n    Fencepost {_shown(one.fencepost)}"
        found.setdefault((f"{one.theme}: {one.situation} | {one.path}", values), []).append(one.version)
    return "\n".join(f"{place} | v{_ranges(versions)}\n{values}" for (place, values), versions in found.items())


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}…"


def answers_of(host: str, port: int, sequence: Callable[[Exchange], None]) -> dict[tuple[str, int], Any]:
    """Run one theme's sequence against a broker. Raises ValueError for a situation that comes twice."""
    exchange = Exchange(host, port)
    try:
        sequence(exchange)
    finally:
        exchange.close()
    return by_situation(exchange.answers)


def by_situation(answers: Iterable[Answer]) -> dict[tuple[str, int], Any]:
    found: dict[tuple[str, int], Any] = {}
    for answer in answers:
        place = (answer.situation, answer.version)
        if place in found:
            raise ValueError(f"{answer.situation!r} was asked twice at version {answer.version}")
        found[place] = answer.reply
    return found


def compare(theme: str, kafka: Answers, fencepost: Answers) -> list[Deviation]:
    """All that deviates, in the order in which it was asked."""
    deviations = []
    for place in {**kafka, **fencepost}:
        situation, version = place
        for path, expected, found in _differing(kafka.get(place, NOTHING), fencepost.get(place, NOTHING), ""):
            deviations.append(Deviation(theme, situation, version, path, expected, found))
    return deviations


def _differing(kafka: Any, fencepost: Any, path: str) -> list[tuple[str, Any, Any]]:
    if kafka == fencepost:
        return []
    if isinstance(kafka, dict) and isinstance(fencepost, dict):
        names = {**kafka, **fencepost}
        pairs = [(name, kafka.get(name, NOTHING), fencepost.get(name, NOTHING)) for name in names]
    elif isinstance(kafka, list) and isinstance(fencepost, list) and len(kafka) == len(fencepost):
        pairs = [(str(index), kafka[index], fencepost[index]) for index in range(len(kafka))]
    else:
        return [(path, kafka, fencepost)]
    prefix = f"{path}." if path else ""
    return [found for name, one, other in pairs for found in _differing(one, other, prefix + name)]


# Files: one line per situation and reply, with the versions that gave it.


def save(theme: str, answers: Answers) -> Path:
    """Keep what Kafka answered."""
    lines: dict[str, list[tuple[list[int], Any]]] = {}
    for (situation, version), reply in answers.items():
        kept = lines.setdefault(situation, [])
        for versions, earlier in kept:
            if earlier == reply:
                versions.append(version)
                break
        else:
            kept.append(([version], reply))
    path = RECORDINGS / f"{theme}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as out:
        for situation, kept in lines.items():
            for versions, reply in kept:
                line = {"situation": situation, "versions": _ranges(versions), "reply": reply}
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    return path


def load(theme: str) -> dict[tuple[str, int], Any]:
    """What Kafka answered when it was recorded."""
    answers: dict[tuple[str, int], Any] = {}
    for line in (RECORDINGS / f"{theme}.jsonl").read_text().splitlines():
        kept = json.loads(line)
        for part in kept["versions"].split(","):
            first, _, last = part.partition("-")
            for version in range(int(first), int(last or first) + 1):
                answers[kept["situation"], version] = kept["reply"]
    return answers


def _ranges(versions: list[int]) -> str:
    parts: list[list[int]] = []
    for version in sorted(versions):
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
