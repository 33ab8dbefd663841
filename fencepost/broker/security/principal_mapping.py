"""Rules that make a principal's name of the name in a client's certificate: `ssl.principal.mapping.rules`. Pure.

A rule that meant something else than in Kafka would give clients the names of others. So a construct that does not mean
the same is refused when the rules are read.
Source: Kafka's SslPrincipalMapper, KIP-371. Patterns are matched by RE2, which takes no more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from fencepost.broker.kernel.java_pattern import LINE_ENDS, Translated, compiled

NO_RULE = "no rule of ssl.principal.mapping.rules matches it"

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
    r"(?:,|$)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"\\(.)|\$(?:(\d+)|\{([A-Za-z][A-Za-z0-9]*)\})|([$\\])", re.DOTALL)

_BEYOND_WORDS = r"(?:[^\w,= ]|[\d_])"
_UNCLEAR_SIGMA = re.compile(
    f"{_BEYOND_WORDS}\N{GREEK CAPITAL LETTER SIGMA}|\N{GREEK CAPITAL LETTER SIGMA}{_BEYOND_WORDS}"
)
"""Which of two small letters this is depends on the end of the word, which Java finds in another way."""


class _UnclearError(Exception):
    """A subject of which Java may make another name than this module."""


class _Rule(NamedTuple):
    """One rule. replace: None for DEFAULT, else makes the name of the match of the whole name, or returns None."""

    replace: Callable[[str], str | None] | None


class PrincipalMapping:
    """The rules of one listener, in order; the first that matches decides.

    Raises ValueError for text that is no list of rules.
    """

    def __init__(self, text: str) -> None:
        self._rules = tuple(_parse(text))

    def name_of(self, subject: str) -> str | None:
        """The principal's name, without its type, of a certificate's subject; None if no rule matches.

        Also None if Java may make another name: a pattern meets a line end, or may match nothing and meets a character
        above U+FFFF, or a capital sigma at a digit or sign becomes a small letter.
        """
        try:
            for rule in self._rules:
                name = subject if rule.replace is None else rule.replace(subject)
                if name is not None:
                    return name
        except _UnclearError:
            pass
        return None


def _parse(text: str) -> list[_Rule]:
    text = text.strip()
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(
                f"expected rules such as RULE:^CN=([^,]+).*$/$1/L or DEFAULT, separated by commas; got "
                f"{text[position:]!r}"
            )
        rules.append(_Rule(None if match["default"] else _replacement_of(match)))
        position = match.end()
    return rules


def _replacement_of(rule: re.Match[str]) -> Callable[[str], str | None]:
    translated, whole = compiled(rule["pattern"])
    parts = _parts(rule["replacement"], translated)
    case = rule["case"]

    def substitute(match: Any) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

    def replace(subject: str) -> str | None:
        if LINE_ENDS.search(subject) is not None:
            raise _UnclearError
        if whole.fullmatch(subject) is None:
            return None
        if translated.may_be_empty and subject and max(subject) > "\uffff":
            raise _UnclearError  # Java finds nothing, and replaces it, within such a character, too
        name: str = whole.sub(substitute, subject)  # every match of it, as Java's replaceAll
        if case == "L" and _UNCLEAR_SIGMA.search(name) is not None:
            raise _UnclearError
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return replace


def _parts(replacement: str, pattern: Translated) -> list[str | int]:
    r"""The replacement as text and numbers of groups; `\` escapes.

    A number takes as many digits as there are groups for, as in Java. If there is no group even for its first digit,
    Kafka takes it for text. Raises ValueError for a replacement that Java refuses at the first certificate.
    """
    count = pattern.group_count
    parts: list[str | int] = []
    position = 0
    has_text_reference = False

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"the replacement {replacement!r} cannot be used: {reason}")

    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[position : found.start()])
        position = found.end()
        escaped, digits, name, incomplete = found.groups()
        if escaped is not None:
            digit = re.match("[0-9]", replacement[position:]) if escaped == "$" else None
            if digit is not None and 0 < count < int(digit[0]):
                refuse(
                    r"Kafka takes \$ before the number of no group for something else: put other text between the two"
                )
            parts.append(escaped)
        elif name is not None:
            if name not in pattern.names:
                refuse(f"the pattern has no group {name!r}")
            parts.append(pattern.names[name])
        elif incomplete == "$":
            refuse(r"$ is not followed by the number or the name of a group; write \$ for the character")
        elif incomplete is not None:
            refuse("a backslash at the end escapes nothing")
        else:
            length = len(digits)
            while length > 1 and int(digits[:length]) > count:
                length -= 1
            if digits[0] == "0":
                length = 1
                while length < len(digits) and int(digits[: length + 1]) <= count:
                    length += 1
            if int(digits[:length]) <= count:
                parts += (int(digits[:length]), digits[length:])
            elif count and not has_text_reference:
                has_text_reference = True
                parts.append(found[0])
            elif count:
                refuse("Kafka takes only one number without a group for text")
            else:
                refuse(f"the pattern has no group {digits[0]}")
    parts.append(replacement[position:])
    return parts
