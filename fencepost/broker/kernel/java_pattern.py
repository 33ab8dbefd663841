r"""Patterns of java.util.regex as patterns of RE2: those that mean the same in both. Pure.

RE2 reads many constructs of Java without complaint, and as something else: `[a-z&&[^x]]` as plain characters, `\s`
without the vertical tab. So each construct is translated by name, and one without an equal is refused, with its name.
Texts to match have no line ends: `.` and `$` would differ.
Source: java.util.regex.Pattern of Java 17.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, NoReturn

LINE_ENDS: Final = re.compile("[\n\r\u0085\u2028\u2029]")
"""The characters that end a line in Java."""

_DIGIT, _WORD, _SPACE = "0-9", "0-9A-Za-z_", r"\t\n\x{b}\f\r "
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_REFUSED_ESCAPES: Final = {
    "b": "a word boundary",
    "B": "a word boundary",
    "c": "a control character",
    "G": "the end of the match before",
    "h": "a class of white space",
    "H": "a class of white space",
    "k": "a back-reference",
    "N": "a character by its name",
    "p": "a class of Unicode or POSIX",
    "P": "a class of Unicode or POSIX",
    "R": "a line break",
    "u": "a character by its number",
    "v": "a class of white space",
    "V": "a class of white space",
    "x": "a character by its number",
    "X": "a grapheme cluster",
    "Z": "the end before a line end",
    "0": "a character by its number",
    **dict.fromkeys("123456789", "a back-reference"),
}
_REFUSED_GROUPS: Final = (
    ("(?=", "a look-ahead"),
    ("(?!", "a look-ahead"),
    ("(?<=", "a look-behind"),
    ("(?<!", "a look-behind"),
    ("(?>", "an independent group"),
    ("(?", "an inline flag"),
)
_NAMED_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_REPETITION: Final = re.compile(r"(?:[*+?]|\{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\})")
_DEEPEST: Final = 50
"""Groups in groups; far more than a rule needs."""


class PatternError(ValueError):
    """A pattern that is none, or that means something else in RE2: one line."""


class Translated(NamedTuple):
    """A pattern of RE2.

    may_be_empty: whether it may match nothing. names: the numbers of the groups that have one.
    """

    text: str
    may_be_empty: bool
    group_count: int
    names: dict[str, int]


class _Part(NamedTuple):
    text: str
    may_be_empty: bool = False
    has_groups: bool = False


def translate(pattern: str) -> Translated:
    """Return the pattern of RE2 that matches as Java's does. Raises PatternError."""
    translation = _Translation(pattern)
    part = translation.alternatives(0)
    if translation.position < len(pattern):
        translation.refuse(")", "a parenthesis that closes nothing")
    return Translated(part.text, part.may_be_empty, translation.group_count, translation.names)


def compiled(pattern: str, *, maximum_memory_bytes: int | None = None) -> tuple[Translated, Any]:
    """Return the translation, and RE2's pattern of it. maximum_memory_bytes: RE2's bound on it, 8 MiB by default.

    Raises PatternError.
    """
    # Imported here: few brokers have patterns.
    import re2

    options = re2.Options()
    options.log_errors = False
    if maximum_memory_bytes is not None:
        options.max_mem = maximum_memory_bytes
    try:
        translated = translate(pattern)
        return translated, re2.compile(translated.text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise PatternError(f"the pattern {pattern!r} cannot be read: {reason}") from None
    except PatternError as error:
        raise PatternError(f"the pattern {pattern!r} cannot be used: {error}") from None


class _Translation:
    """The progress in a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.position = 0
        self.group_count = 0
        self.names: dict[str, int] = {}

    def refuse(self, construct: str, meaning: str) -> NoReturn:
        raise PatternError(f"{construct} ({meaning}, at {self.position}) is not supported")

    def _at(self, text: str) -> bool:
        return self._pattern.startswith(text, self.position)

    def alternatives(self, depth: int) -> _Part:
        if depth > _DEEPEST:
            self.refuse("(", f"more than {_DEEPEST} groups in one another")
        parts = [self._sequence(depth)]
        while self._at("|"):
            self.position += 1
            parts.append(self._sequence(depth))
        return _Part(
            "|".join(part.text for part in parts),
            any(part.may_be_empty for part in parts),
            any(part.has_groups for part in parts),
        )

    def _sequence(self, depth: int) -> _Part:
        parts = []
        while self.position < len(self._pattern) and not self._at("|") and not self._at(")"):
            part = self._quoted() if self._at(r"\Q") else self._repeated(self._atom(depth))
            parts.append(part)
        return _Part(
            "".join(part.text for part in parts),
            all(part.may_be_empty for part in parts),
            any(part.has_groups for part in parts),
        )

    def _quoted(self) -> _Part:
        quoted, end, _ = self._pattern[self.position + 2 :].partition(r"\E")
        self.position += 2 + len(quoted) + len(end)
        if _REPETITION.match(self._pattern, self.position):
            self.refuse(r"\Q…\E", "a quotation that is repeated; put it into a group")
        return _Part(_literal(quoted), not quoted)

    def _repeated(self, atom: _Part) -> _Part:
        found = _REPETITION.match(self._pattern, self.position)
        if found is None:
            if self._at("{"):
                self.refuse("{", "a repetition without numbers; write \\{ for the character")
            return atom
        if atom.text in ("^", "$", r"\A", r"\z"):
            self.refuse(found[0], "a repetition of a place")
        if atom.has_groups and atom.may_be_empty:
            self.refuse(found[0], "a repetition of a group that may match nothing")
        self.position = found.end()
        repetition = re.sub(r"\b0+(?=\d)", "", found[0])  # RE2 takes `{02}` for text
        if self._at("+"):
            self.refuse(f"{repetition}+", "a possessive quantifier")
        if self._at("?"):
            self.position += 1
            repetition += "?"
        if _REPETITION.match(self._pattern, self.position) or self._at("{"):
            self.refuse(self._pattern[self.position], "a repetition of a repetition")
        may_be_empty = atom.may_be_empty or repetition[0] in "*?" or re.match(r"\{0+[,}]", repetition) is not None
        return _Part(atom.text + repetition, may_be_empty, atom.has_groups)

    def _atom(self, depth: int) -> _Part:
        character = self._pattern[self.position]
        if character == "(":
            return self._group(depth)
        if character == "[":
            return _Part(self._class())
        if character == "\\":
            return self._escape()
        if character in "*+?{":
            self.refuse(character, "a repetition of nothing")
        self.position += 1
        if character == ".":
            return _Part(".")
        if character in "^$":
            return _Part(character, may_be_empty=True)
        return _Part(_literal(character))

    def _group(self, depth: int) -> _Part:
        named = _NAMED_GROUP.match(self._pattern, self.position)
        if named is not None:
            if named[1] in self.names:
                self.refuse(named[0], "a second group of this name")
            self.group_count += 1
            self.names[named[1]] = self.group_count
            opening, skipped, has_groups = "(", len(named[0]), True
        elif self._at("(?:"):
            opening, skipped, has_groups = "(?:", 3, False
        else:
            for construct, meaning in _REFUSED_GROUPS:
                if self._at(construct):
                    self.refuse(construct, meaning)
            self.group_count += 1
            opening, skipped, has_groups = "(", 1, True
        begin = self.position
        self.position += skipped
        content = self.alternatives(depth + 1)
        if not self._at(")"):
            self.position = begin
            self.refuse("(", "a parenthesis that is not closed")
        self.position += 1
        return _Part(f"{opening}{content.text})", content.may_be_empty, has_groups or content.has_groups)

    def _escape(self) -> _Part:
        name = self._escaped()
        if name in _CLASSES:
            return _Part(f"[{_CLASSES[name]}]")
        if name.lower() in _CLASSES:
            return _Part(f"[^{_CLASSES[name.lower()]}]")
        if name in ("A", "z"):
            return _Part(f"\\{name}", may_be_empty=True)
        return _Part(_literal(self._character(name)))

    def _escaped(self) -> str:
        """Read a backslash and the escaped character; return the latter."""
        if self.position + 1 == len(self._pattern):
            self.refuse("\\", "a backslash that escapes nothing")
        name = self._pattern[self.position + 1]
        if name in _REFUSED_ESCAPES:
            self.refuse(f"\\{name}", _REFUSED_ESCAPES[name])
        self.position += 2
        return name

    def _character(self, name: str) -> str:
        if name in _CONTROLS:
            return _CONTROLS[name]
        if name.isascii() and name.isalnum():
            self.position -= 2
            self.refuse(f"\\{name}", "an escape without a meaning")
        return name

    def _class(self) -> str:
        begin = self.position
        self.position += 1
        text = "["
        if self._at("^"):
            self.position += 1
            text += "^"
        if self._at("]"):
            self.refuse("[]", "a class of nothing")
        while not self._at("]"):
            text += self._range(begin)
        self.position += 1
        return text + "]"

    def _range(self, begin: int) -> str:
        """One character, range or class within a class."""
        first = self._member(begin)
        if len(first) > 1:
            if self._at("-") and self._pattern[self.position + 1 : self.position + 2] != "]":
                self.refuse("-", "a range that begins with a class")
            return first
        is_range = self._at("-") and self._pattern[self.position + 1 : self.position + 2] not in ("]", "")
        if not is_range:
            return _literal(first)
        self.position += 1
        last = self._member(begin)
        if len(last) > 1:
            self.refuse("-", "a range that ends with a class")
        if last < first:
            self.refuse(f"{first}-{last}", "a range that ends before it begins")
        return f"{_literal(first)}-{_literal(last)}"

    def _member(self, begin: int) -> str:
        """A character, or the ranges of a class, which are longer."""
        if self.position >= len(self._pattern):
            self.position = begin
            self.refuse("[", "a class that is not closed")
        if self._at("["):
            self.refuse("[…[…]]", "a union of classes")
        if self._at("&&"):
            self.refuse("&&", "an intersection of classes")
        character = self._pattern[self.position]
        if character != "\\":
            self.position += 1
            return character
        name = self._escaped()
        if name in _CLASSES:
            return _CLASSES[name]
        if name in "DWSAzQE":
            self.position -= 2
            self.refuse(f"\\{name}", "this escape in a class")
        return self._character(name)


def _literal(text: str) -> str:
    """The pattern of RE2 that matches exactly a text, also within a class."""
    return "".join(one if one.isalnum() else f"\\x{{{ord(one):x}}}" for one in text)
