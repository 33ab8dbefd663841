"""Answers of two brokers side by side, what of them deviates, and the files in which Kafka's answers are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.differences.connection import Login
from tests.differences.exchange import NO_API, Exchange

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "tests" / "frames" / "answers"
NOTHING = "(nothing)"

Served = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key."""


class Given(NamedTuple):
    """A reply as plain data, and the API that was asked; NO_API where it is none."""

    api_key: int
    reply: Any


class Answers(NamedTuple):
    """What a broker said, by situation and version, and which versions it serves; None for a recording of Kafka's."""

    given: dict[tuple[str, int], Given]
    served: Served | None = None


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


def story(answers: Answers, end: Sequence[Deviation]) -> str:
    """Text for people: what was asked and answered, up to the situation of these deviations."""
    lines = []
    for (situation, version), given in answers.given.items():
        lines.append(f"{situation} | v{version}\n    {_shown(given.reply)}\n")
        if end and (situation, version) == (end[0].situation, end[0].version):
            break
    return "".join(lines)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}…"


def answers_of(
    host: str,
    port: int,
    sequence: Callable[[Exchange], None],
    *,
    token: str | None = None,
    login: Login | None = None,
) -> Answers:
    """Run one theme's sequence against a broker. Raises ValueError for a situation that comes twice."""
    exchange = Exchange(host, port, token=token, login=login)
    try:
        sequence(exchange)
    finally:
        exchange.close()
    found: dict[tuple[str, int], Given] = {}
    for answer in exchange.answers:
        place = (answer.situation, answer.version)
        if place in found:
            raise ValueError(f"{answer.situation!r} was asked twice at version {answer.version}")
        found[place] = Given(answer.api_key, answer.reply)
    return Answers(found, exchange.served)


def compare(theme: str, kafka: Answers, fencepost: Answers) -> list[Deviation]:
    """All that deviates, in the order in which it was asked.

    What Fencepost does not serve is left out: that its ApiVersions say less is a deviation of the theme `protocol`.
    """
    deviations = []
    for place in {**kafka.given, **fencepost.given}:
        situation, version = place
        expected = kafka.given.get(place, _NOT_REQUESTED)
        if not _is_served(expected.api_key, version, fencepost.served):
            continue
        found = fencepost.given.get(place, _NOT_REQUESTED)
        for path, kafka_value, fencepost_value in _differing(expected.reply, found.reply, ""):
            deviations.append(Deviation(theme, situation, version, path, kafka_value, fencepost_value))
    return deviations


_NOT_REQUESTED = Given(NO_API, NOTHING)


def until_first(deviations: Iterable[Deviation]) -> list[Deviation]:
    """Those of the first situation that has any: where what is asked depends on earlier answers, others follow."""
    found: list[Deviation] = []
    for one in deviations:
        if found and (one.situation, one.version) != (found[0].situation, found[0].version):
            break
        found.append(one)
    return found


def _is_served(api_key: int, version: int, served: Served | None) -> bool:
    if api_key == NO_API or served is None:
        return True
    lowest, highest = served.get(api_key, (1, 0))
    return lowest <= version <= highest


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
    lines: dict[tuple[str, int], list[tuple[list[int], Any]]] = {}
    for (situation, version), given in answers.given.items():
        kept = lines.setdefault((situation, given.api_key), [])
        for versions, earlier in kept:
            if earlier == given.reply:
                versions.append(version)
                break
        else:
            kept.append(([version], given.reply))
    path = RECORDINGS / f"{theme}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as out:
        for (situation, api_key), kept in lines.items():
            for versions, reply in kept:
                line = {"situation": situation, "api": api_key, "versions": _ranges(versions), "reply": reply}
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    return path


def load(theme: str) -> Answers:
    """What Kafka answered when it was recorded."""
    given: dict[tuple[str, int], Given] = {}
    for line in (RECORDINGS / f"{theme}.jsonl").read_text().splitlines():
        kept = json.loads(line)
        for part in kept["versions"].split(","):
            first, _, last = part.partition("-")
            for version in range(int(first), int(last or first) + 1):
                given[kept["situation"], version] = Given(kept["api"], kept["reply"])
    return Answers(given)


def _ranges(versions: list[int]) -> str:
    parts: list[list[int]] = []
    for version in sorted(versions):
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
