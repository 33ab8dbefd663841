"""Rules, by topic and field, that hide parts of records. Pure but for the key of hashes.

A rule is a line `TOPICS PLACE KIND`:

    orders*   value.card.number   last-four
    users     key                 hash
    *         header.authorization hide

TOPICS has `*` and `?`. PLACE is `key`, `value` or `header.NAME`, for a key and a value followed by the names of fields.
A field of an array is that of each of its items; `*` is any name, as of a map. Letter case and underscores of names do
not count. KIND is `hide`, `hash` or `last-four`. A rule that cannot tell where its field is hides the whole value.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Final

HIDDEN: Final = "(hidden)"
PLACES: Final = ("key", "value", "header")
LEAST_FOR_LAST_FOUR: Final = 9
"""Of a shorter text, four characters would tell too much."""
LARGEST_FILE_BYTES: Final = 1 << 20
_PIECE: Final = re.compile(r'\.(?:"([^"]+)"|([^."\[\]\s]+))(?:\[\])?')


class RulesError(ValueError):
    """A file of rules that cannot be used: the line, and the reason."""


@dataclass(frozen=True)
class Rule:
    """fields: names within a key or a value, or the name of a header; none for the whole."""

    topics: re.Pattern[str]
    place: str
    fields: tuple[str, ...]
    kind: str


class Rules:
    """Rules that were read. key: of the hashes; equal values have equal hashes as long as it is the same."""

    def __init__(self, rules: Iterable[Rule] = (), key: bytes | None = None) -> None:
        self._rules = tuple(rules)
        self._key = key or secrets.token_bytes(32)

    def of(self, topic: str) -> TopicRules:
        return TopicRules(self, tuple(one for one in self._rules if one.topics.match(topic)))

    def masked(self, kind: str, value: Any) -> str:
        """The text in place of a value."""
        if kind == "hide":
            return HIDDEN
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
        if kind == "hash":
            return "#" + hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]
        is_short = len(text) < LEAST_FOR_LAST_FOUR or not isinstance(value, str | int)
        return HIDDEN if is_short else "…" + text[-4:]


KINDS: Final = ("hide", "hash", "last-four")


@dataclass(frozen=True)
class TopicRules:
    """The rules for one topic."""

    rules: Rules
    found: tuple[Rule, ...]

    def concern(self, place: str) -> bool:
        """Whether there is a rule for keys, values or headers."""
        return any(one.place == place for one in self.found)

    def of_whole(self, place: str) -> str | None:
        """The kind of the rule for a whole key or value; None if there is none."""
        kinds = [one.kind for one in self.found if one.place == place and not one.fields]
        return None if not kinds else kinds[0] if len(set(kinds)) == 1 else "hide"

    def read(self, place: str, value: Any) -> Any:
        """A key or a value that was read, with the text for it in place of each hidden part."""
        for one in self.found:
            if one.place == place:
                value = self._hidden(value, one.fields, one.kind)
        return value

    def header(self, name: str, content: str) -> str | None:
        """The text in place of a header's value, or None if no rule is for it."""
        for one in self.found:
            if one.place == "header" and _same(one.fields[0], name):
                return self.rules.masked(one.kind, content)
        return None

    def _hidden(self, value: Any, fields: Sequence[str], kind: str) -> Any:
        if not fields:
            return None if value is None else self.rules.masked(kind, value)
        if isinstance(value, Mapping):
            return {
                name: self._hidden(one, fields[1:], kind) if _same(fields[0], name) else one
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [self._hidden(one, fields, kind) for one in value]
        # The rule expects fields here; the value in their place may be the one to hide.
        return None if value is None else HIDDEN


def _same(wanted: str, name: str) -> bool:
    return wanted == "*" or _plain(wanted) == _plain(name)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def read_rules(path: str) -> Rules:
    """Read a file of rules. Raises RulesError, OSError."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise RulesError(f"{path}: a file of rules may have at most {LARGEST_FILE_BYTES:,} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RulesError(f"{path}: it is not UTF-8 text") from None
    return Rules(parse_rules(text, path))


def parse_rules(text: str, path: str) -> list[Rule]:
    """Raises RulesError. path: for messages."""
    rules = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            rules.append(_rule(words))
        except RulesError as error:
            raise RulesError(f"{path}:{number}: {error}") from None
    if not rules:
        raise RulesError(f"{path}: it has no rule")
    return rules


def _rule(words: list[str]) -> Rule:
    if len(words) != 3:
        raise RulesError(
            f"a rule has three words, such as `orders* value.card.number last-four`; this one has {len(words)}"
        )
    topics, place_text, kind = words
    if kind not in KINDS:
        raise RulesError(f"{kind} is no kind of masking; kinds are {', '.join(KINDS)}")
    head = re.split(r"[.\[]", place_text, maxsplit=1)[0]
    if head not in PLACES:
        raise RulesError(f"{place_text} begins with none of {', '.join(PLACES)}")
    rest = place_text.removeprefix(head)
    fields = _header(rest) if head == "header" else _fields(rest, place_text)
    return Rule(re.compile(translate(topics)), head, fields, kind)


def _header(text: str) -> tuple[str, ...]:
    """The name of a header, which may have dots."""
    name = text.removeprefix(".").strip('"')
    if not text.startswith(".") or not name:
        raise RulesError("the name of the header is missing: header.NAME")
    return (name,)


def _fields(text: str, place: str) -> tuple[str, ...]:
    fields, at = [], 2 if text.startswith("[]") else 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise RulesError(
                f'{place} cannot be read from {text[at:]!r} on; a name with a dot is written as value."a.b"'
            )
        fields.append(found[1] or found[2])
        at = found.end()
    return tuple(fields)
