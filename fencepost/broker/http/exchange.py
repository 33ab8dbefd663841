"""A request and a response of the HTTP listener, without bytes of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.protocol.checked_json import JsonError, parse

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
PIECE_CHARACTERS: Final = 32_768
"""Text that is encoded in one step of the event loop."""

Pieces = Iterator[str]
"""The text of a body, piece by piece; an empty piece is a moment at which others may run."""


class BadRequestError(Exception):
    """The fault of a request and its remedy, for the client; the status is that of the response."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class HttpRequest:
    """One request.

    path:    decoded parts between slashes: `("v1", "partitions", "orders", "3")`.
    query:   every value of every name.
    headers: values by lower-case name; the last one of a repeated name.
    body:    64 KiB or less.
    caller:  the name of the token; empty without one.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    caller: str = ""
    client_host: str = ""

    @classmethod
    def of_target(cls, method: str, target: str, headers: Mapping[str, str], client_host: str = "") -> HttpRequest:
        """Read a target such as `/v1/transactions?state=Ongoing`. Raises BadRequestError."""
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            raise BadRequestError("the target must be a path, such as /metrics")
        try:
            # Divided before it is decoded: a transactional id may have slashes, as %2F.
            parts = tuple(unquote(part, errors="strict") for part in path[1:].split("/"))
            values = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=1_000)
        except ValueError as error:
            raise BadRequestError(f"the target cannot be read: {error}") from None
        return cls(method, parts, values, headers, client_host=client_host)

    def one(self, name: str) -> str | None:
        """The value of a name in the query; None without one. Raises BadRequestError for several."""
        values = self.query.get(name, ())
        if len(values) > 1:
            raise BadRequestError(f"{name} may be given once")
        return values[0] if values else None

    def number(self, name: str) -> int | None:
        """As `one`, a number of 0 or more."""
        text = self.one(name)
        return None if text is None else natural_number(name, text)

    def json(self) -> dict[str, Any]:
        """The body, a JSON object; an empty body is an empty object. Raises BadRequestError."""
        if not self.body:
            return {}
        try:
            content = parse(self.body)
        except JsonError as error:
            raise BadRequestError(f"the body is no JSON that can be read: {error}") from None
        if not isinstance(content, dict):
            raise BadRequestError("the body must be a JSON object")
        return content


def natural_number(name: str, text: str) -> int:
    """Read a number of 0 or more. Raises BadRequestError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadRequestError(f"{name} must be a number of 0 or more; got {text[:100]!r}")
    return int(text)


@dataclass(slots=True)
class HttpResponse:
    """One response. pieces: the body, made while it is sent."""

    status: int = 200
    content_type: str = JSON
    pieces: Pieces = field(default_factory=lambda: iter(()))
    headers: Mapping[str, str] = field(default_factory=dict)


def text_response(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(status, TEXT, iter((text,)))


def json_response(content: Any, status: int = 200) -> HttpResponse:
    """A response of a small object, encoded in one step."""
    return HttpResponse(status, JSON, iter((json.dumps(content) + "\n",)))


def error_response(status: int, reason: str) -> HttpResponse:
    """A response that says the fault and the remedy: `{"error": "…"}`."""
    return json_response({"error": reason}, status)


def sliced_json_response(steps: SlicedWork[Any]) -> HttpResponse:
    """A response of an object that is built in steps, and encoded in pieces, while other requests are served."""
    return HttpResponse(200, JSON, _json_pieces(steps))


def _json_pieces(steps: SlicedWork[Any]) -> Pieces:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content = end.value
            break
        yield ""
    piece: list[str] = []
    size = 0
    for part in json.JSONEncoder().iterencode(content):
        piece.append(part)
        size += len(part)
        if len(piece) >= 1_000 or size >= PIECE_CHARACTERS:
            yield "".join(piece)
            piece.clear()
            size = 0
    yield "".join(piece) + "\n"
