"""The settings of resolvers as text: `fencepost.check.back.resolvers`, and `fencepost.check.back.NAME.KEY` of each.

Read from the broker's settings and from the file of `fencepost check-back --config` alike. Every error is found at the
start, and reported with the name of the setting.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from fencepost.check_back.globs import common_name
from fencepost.check_back.places import PLACES, TOKEN, unknown_places
from fencepost.check_back.settings import Exhausted, ResolverSettings

PREFIX: Final = "fencepost.check.back."
LIST: Final = PREFIX + "resolvers"
MAX_INT: Final = 2**31 - 1

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class ResolverSettingsError(ValueError):
    """Settings that no resolver can be made of. problems: name of the setting, and one sentence, of each."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{name}: {problem}" for name, problem in problems))
        self.problems = tuple(problems)


def _whole(lowest: int, highest: int = MAX_INT) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", text) or not lowest <= int(text) <= highest:
            raise ValueError(f"expected whole number, {lowest} to {highest}; got {text!r}")
        return int(text)

    return parse


def _backoff(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text) or not 1 <= float(text) <= 100:
        raise ValueError(f"expected number, 1 to 100; got {text!r}")
    return float(text)


def _exhausted(text: str) -> Exhausted:
    try:
        return Exhausted(text)
    except ValueError:
        raise ValueError(f"expected park, abort or commit; got {text!r}") from None


def _globs(text: str) -> tuple[str, ...]:
    globs = tuple(part.strip() for part in text.split(",") if part.strip())
    if not globs:
        raise ValueError("expected globs of transactional ids, such as order-*; got none")
    return globs


def _url(text: str) -> str:
    try:
        address = urlsplit(text)
        port = address.port  # raises for one that is none
    except ValueError:
        raise ValueError(f"expected https://HOST/PATH with {TOKEN} in it") from None
    if address.scheme not in ("http", "https") or not address.hostname or port == 0 or not text.isascii():
        raise ValueError(f"expected https://HOST/PATH with {TOKEN} in it, in ASCII")
    if any(character <= " " or character == "\x7f" for character in text):
        raise ValueError("expected no blanks; write %20")
    if address.username is not None or address.password is not None:
        raise ValueError("a user and a password here would be shown in logs; send a token by bearer.file")
    if "{" in address.netloc or address.fragment:
        raise ValueError(f"{TOKEN} belongs into the path or the query: clients must not choose the host")
    if TOKEN not in text:
        raise ValueError(f"expected {TOKEN} in it: else the service cannot know which transaction is meant")
    return _only_places(text)


def _key(text: str) -> str:
    if TOKEN not in text:
        raise ValueError(f"expected {TOKEN} in it, or rows of different transactions would be one")
    return _only_places(text)


def _only_places(text: str) -> str:
    unknown = unknown_places(text)
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in PLACES)
        raise ValueError(f"there is no {{{unknown[0]}}}; there are {known}")
    return text


def _table(text: str) -> str:
    if not _TABLE.fullmatch(text):
        raise ValueError(f"expected a name such as fencepost_outcome or shop.fencepost_outcome; got {text!r}")
    return text


def _claim(text: str) -> str:
    if text not in ("outcome", "session"):
        raise ValueError(f"expected outcome or session; got {text!r}")
    return text


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError(f"expected the name of a topic; got {text!r}")
    return text


def _readable(text: str) -> str:
    try:
        with open(text, "rb"):
            return text
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ValueError(f"{text} cannot be read ({reason}); correct the path, or its rights") from None


SCHEDULE: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "first.ms": ("first_ms", _whole(0)),
    "interval.ms": ("interval_ms", _whole(1)),
    "backoff": ("backoff", _backoff),
    "interval.max.ms": ("interval_max_ms", _whole(1)),
    "checks.max": ("checks_max", _whole(1)),
    "timeout.ms": ("timeout_ms", _whole(1, 600_000)),
    "concurrency": ("concurrency", _whole(1, 1000)),
    "exhausted": ("exhausted", _exhausted),
}
"""By key, the field of ResolverSettings and the function that parses it."""


@dataclass(frozen=True)
class _Type:
    """The keys of one type of resolver, with the function that checks each; the required ones."""

    options: Mapping[str, Callable[[str], str]]
    needed: str


TYPES: Final[Mapping[str, _Type]] = {
    "http": _Type({"url": _url, "ca.file": _readable, "bearer.file": _readable}, "url"),
    "sql": _Type({"dsn.file": _readable, "claim": _claim, "table": _table, "key": _key, "query": str}, "dsn.file"),
    "record": _Type({"topic": _topic, "key": str}, "topic"),
}
KEYS: Final = ("type", "ids", *SCHEDULE, *dict.fromkeys(key for kind in TYPES.values() for key in kind.options))


def resolver_settings(properties: Mapping[str, str]) -> tuple[ResolverSettings, ...]:
    """Read the resolvers, in the order of the list. Names that do not begin with `fencepost.check.back.` are left out.

    Raises ResolverSettingsError with every problem found, such as a named file that does not exist.
    """
    problems: list[tuple[str, str]] = []
    names = _names(properties, problems)
    of_each: dict[str, dict[str, str]] = {name: {} for name in names}
    for full, text in properties.items():
        if not full.startswith(PREFIX) or full == LIST:
            continue
        name, _, key = full.removeprefix(PREFIX).partition(".")
        if name not in of_each:
            problems.append((full, _unknown_resolver(name, names)))
        elif key not in KEYS:
            problems.append((full, f"unknown setting of a resolver; {_nearest(key, KEYS)}"))
        else:
            of_each[name][key] = text.strip()
    found = [_read(name, texts, problems) for name, texts in of_each.items()]
    resolvers = tuple(one for one in found if one is not None)
    for position, one in enumerate(resolvers):
        for earlier in resolvers[:position]:
            problems += _overlaps(earlier, one)
    if problems:
        raise ResolverSettingsError(problems)
    return resolvers


def resolver_warnings(resolvers: Sequence[ResolverSettings]) -> tuple[str, ...]:
    """Return warnings of settings that work but are unwise, one sentence each, which begins with the setting's name."""
    warnings = []
    for one in resolvers:
        address = urlsplit(one.options.get("url", ""))
        if address.scheme == "http" and not _is_loopback(address.hostname or ""):
            warnings.append(
                f"{PREFIX}{one.name}.url: without TLS, what is between can answer in the place of {address.hostname}; "
                "use https"
            )
        if one.exhausted is not Exhausted.PARK:
            warnings.append(
                f"{PREFIX}{one.name}.exhausted: {one.exhausted.value} guesses where the source does not know; with "
                "park an administrator decides"
            )
    return tuple(warnings)


def _names(properties: Mapping[str, str], problems: list[tuple[str, str]]) -> list[str]:
    names: list[str] = []
    for name in (part.strip() for part in properties.get(LIST, "").split(",")):
        if not name:
            continue
        if not _NAME.fullmatch(name):
            problems.append((LIST, f"expected names of letters, digits, - and _; got {name!r}"))
        elif name == "resolvers":
            problems.append((LIST, "a resolver cannot have the name resolvers"))
        elif name in names:
            problems.append((LIST, f"{name} is listed twice"))
        else:
            names.append(name)
    return names


def _read(name: str, texts: Mapping[str, str], problems: list[tuple[str, str]]) -> ResolverSettings | None:
    """Read one resolver. Adds its problems, and returns None if it has any."""
    before = len(problems)
    prefix = f"{PREFIX}{name}."

    def read(key: str, parse: Callable[[str], Any]) -> Any:
        try:
            return parse(texts[key])
        except ValueError as error:
            problems.append((prefix + key, str(error)))
            return None

    ids: tuple[str, ...] = ()
    if "ids" in texts:
        ids = read("ids", _globs)
    else:
        problems.append((prefix + "ids", "is missing: globs of the transactional ids to ask about, such as order-*"))
    fields = {field: read(key, parse) for key, (field, parse) in SCHEDULE.items() if key in texts}
    kind = TYPES.get(texts.get("type", ""))
    options: dict[str, str] = {}
    if kind is None:
        given = f"got {texts['type']!r}" if "type" in texts else "it is missing"
        problems.append((prefix + "type", f"expected {', '.join(TYPES)}; {given}"))
    else:
        if not texts.get(kind.needed):
            problems.append((prefix + kind.needed, f"is missing: a resolver of type {texts['type']} needs it"))
        for key in texts:
            if key in kind.options and texts[key]:
                options[key] = read(key, kind.options[key])
            elif key not in SCHEDULE and key not in ("type", "ids") and key not in kind.options:
                problems.append((prefix + key, f"has no meaning for type {texts['type']}; remove it"))
        of_claims = [key for key in ("claim", "table", "key") if key in options and "query" in options]
        problems += [
            (prefix + key, "has no meaning beside query, which claims nothing; remove one") for key in of_claims
        ]
        if options.get("claim") == "session" and "key" in options:
            problems.append((prefix + "key", "has no meaning for sessions, which have one row each; remove it"))
    if len(problems) > before:
        return None
    made = ResolverSettings(name=name, ids=ids, type=texts["type"], options=options, **fields)
    if made.interval_max_ms < made.interval_ms:
        problems.append((prefix + "interval.max.ms", f"must not be less than interval.ms, {made.interval_ms}"))
        return None
    return made


def _overlaps(earlier: ResolverSettings, later: ResolverSettings) -> list[tuple[str, str]]:
    for glob in later.ids:
        for other in earlier.ids:
            name = common_name(other, glob)
            if name is not None:
                both = f"{glob} and {other} of resolver {earlier.name} both match ids such as {name!r}"
                return [(f"{PREFIX}{later.name}.ids", f"{both}; let one resolver answer for an id")]
    return []


def _unknown_resolver(name: str, names: Sequence[str]) -> str:
    if not names:
        return f"{LIST} names no resolver; add {name} to it"
    near = difflib.get_close_matches(name, names, 1)
    return f"{LIST} does not name {name}; " + (f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}")


def _nearest(key: str, keys: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, keys, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(keys)}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
