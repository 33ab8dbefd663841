"""Whether two globs can match the same name, and an example of one. Pure.

Globs are those of fnmatch: `*` any text, `?` any character, `[abc]` and `[!abc]` one of a set. Case counts.
"""

from __future__ import annotations

import re
from collections import deque
from fnmatch import translate

_PIECE = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
STAR = "*"
USUAL = "x0-"
"""Characters for an example, where any will do."""


def common_name(first: str, second: str) -> str | None:
    """A name that both globs match; None if there is none."""
    pieces = _PIECE.findall(first), _PIECE.findall(second)
    # A set that names all of these leaves out one of the others.
    characters = list(dict.fromkeys([*USUAL, *first, *second, *map(chr, range(32, 127))]))
    seen = {(0, 0)}
    queue = deque([(0, 0, "")])
    while queue:
        at_first, at_second, name = queue.popleft()
        if at_first == len(pieces[0]) and at_second == len(pieces[1]):
            return name
        for following in _steps(pieces[0], at_first, pieces[1], at_second, characters):
            if following[:2] not in seen:
                seen.add(following[:2])
                (queue.append if following[2] else queue.appendleft)((*following[:2], name + following[2]))
    return None


def _steps(
    first: list[str], at_first: int, second: list[str], at_second: int, characters: list[str]
) -> list[tuple[int, int, str]]:
    """The positions that follow on a pair of positions, with the character that leads there; none for an empty `*`."""
    one = first[at_first] if at_first < len(first) else None
    other = second[at_second] if at_second < len(second) else None
    steps = []
    if one == STAR:
        steps.append((at_first + 1, at_second, ""))
    if other == STAR:
        steps.append((at_first, at_second + 1, ""))
    if one is not None and other is not None:
        for character in characters:
            if _accepts(one, character) and _accepts(other, character):
                steps.append((at_first + (one != STAR), at_second + (other != STAR), character))
                break
    return steps


def _accepts(piece: str, character: str) -> bool:
    return piece in ("*", "?", character) or (len(piece) > 1 and re.fullmatch(translate(piece), character) is not None)
