"""Messages of all APIs that this broker speaks, one module per family, request above response.

A family is imported when one of its messages is first used: most brokers need few of them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from fencepost.protocol.messages.families import FAMILIES

__all__ = ["FAMILIES", "REQUESTS", "RESPONSES", "DeclaredMessages"]


class DeclaredMessages(Mapping[int, type[Any]]):
    """By API key, the classes whose names end in `suffix`."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: dict[int, type[Any]] = {}

    def __getitem__(self, api_key: int) -> type[Any]:
        found = self._found.get(api_key)
        if found is None:
            family, name = FAMILIES[api_key]
            found = getattr(import_module(f"{__name__}.{family}"), name + self._suffix)
            self._found[api_key] = found
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(FAMILIES)

    def __len__(self) -> int:
        return len(FAMILIES)


REQUESTS: Final[Mapping[int, type[Any]]] = DeclaredMessages("Request")
"""The declared requests by API key."""

RESPONSES: Final[Mapping[int, type[Any]]] = DeclaredMessages("Response")
"""The declared replies by API key."""
