"""Checks and conversions of the arguments of a test's helpers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fencepost.testing.apis import NAMED
from fencepost.testing.errors import MisuseError, hint
from fencepost.testing.requests import WITH_GROUP, WITH_TRANSACTIONAL_ID

Content = bytes | str | None


def check_requests_have(chosen: Mapping[str, object], key: int | None, named: str) -> None:
    """Raises MisuseError if requests of an API, None for any, have nothing that could be compared."""
    if key is None:
        return
    if (chosen.get("topic") is not None or chosen.get("partition") is not None) and key not in NAMED:
        raise MisuseError(f"{named} names no topics: leave out topic and partition")
    if chosen.get("transactional_id") is not None and key not in WITH_TRANSACTIONAL_ID:
        raise MisuseError(f"{named} has no transactional id: leave it out, or choose requests by client_id")
    if chosen.get("group") is not None and key not in WITH_GROUP:
        raise MisuseError(f"{named} names no group: leave it out, or choose requests by client_id")


def existing(name: str, find: Callable[[str], Any], names: Callable[[], Iterable[str]], missing: str) -> Any:
    """Find an object by name. Raises MisuseError, with the name that was probably meant, if it does not exist.

    missing: the sentence for that, with the remedy.
    """
    found = find(name)
    if found is None:
        raise MisuseError(f"{missing}; {hint(name, names())}")
    return found


def bytes_of(content: Content) -> bytes | None:
    """The content of a record; texts are encoded as UTF-8. Raises MisuseError."""
    if isinstance(content, str):
        return content.encode()
    if content is not None and not isinstance(content, bytes | bytearray | memoryview):
        raise MisuseError(f"{content!r} is no content of a record: give bytes or text, such as json.dumps(…), or None")
    return content


def text_of(value: object) -> str:
    """Format a setting's value as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
