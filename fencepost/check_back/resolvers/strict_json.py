"""JSON that means one thing: no keys twice, no NaN, nothing nested without end. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class _RefusedError(ValueError):
    """What Python's reader takes and nobody should."""


def parse_object(text: bytes) -> dict[str, Any]:
    """Read a JSON object in UTF-8. Raises ValueError, which says in some words what is wrong."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except _RefusedError:
        raise
    except ValueError:  # also a number of more digits than Python reads
        raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # a value of another type is a wrong text
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError("it has a key twice")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not JSON")
