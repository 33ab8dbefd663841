"""Text that clients have chosen, made safe for terminals and lines: names of groups, transactions and clients."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, line breaks, marks of writing direction and the like as escapes (`\\x1b`).

    They could move a terminal's cursor, set its title, or fake lines. Letters of all languages stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def cut(text: str, most_characters: int) -> str:
    """The text, or its beginning with a mark that says how long it is."""
    if len(text) <= most_characters:
        return text
    return f"{text[:most_characters]}… ({len(text)} characters)"
