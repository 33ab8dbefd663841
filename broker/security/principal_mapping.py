"""Rules that make a principal's name of the name in a client's certificate: `ssl.principal.mapping.rules`. Pure.

Source: Kafka's SslPrincipalMapper, KIP-371. Patterns are matched by RE2, which takes no more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

NO_RULE = "no rule of ssl.principal.mapping.rules matches it"

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
    r"(?:,|$)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"\\(.)|\$(\d)|([$\\])", re.DOTALL)


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
        """The principal's name, without its type, of a certificate's subject; None if no rule matches."""
        for rule in self._rules:
            name = subject if rule.replace is None else rule.replace(subject)
            if name is not None:
                return name
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
    # Imported here: few brokers have rules.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        whole = re2.compile(rule["pattern"], options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise ValueError(f"the pattern {rule['pattern']!r} cannot be read: {reason}") from None
    parts = _parts(rule["replacement"], whole.groups)
    case = rule["case"]

    def substitute(match: Any) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

    def replace(subject: str) -> str | None:
        if whole.fullmatch(subject) is None:
            return None
        name: str = whole.sub(substitute, subject)  # every match of it, as Java's replaceAll
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return replace


def _parts(replacement: str, group_count: int) -> list[str | int]:
    r"""The replacement as text and numbers of groups. `$1` is a group if there is one, else text; `\` escapes."""
    parts: list[str | int] = []
    position = 0
    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[position : found.start()])
        position = found.end()
        if found[2] is not None and int(found[2]) <= group_count:
            parts.append(int(found[2]))
        else:
            parts.append(found[1] if found[1] is not None else found[0])
    parts.append(replacement[position:])
    return parts
